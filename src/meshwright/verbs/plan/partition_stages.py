"""Rebalance the stages of a plan, by time or by memory, and predict the plan with them."""

from collections.abc import Sequence
from dataclasses import replace

from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.cost.layer_partition_costs import LayerCosts, layer_costs
from meshwright.cost.memory.memory_breakdown import fits, usable_device_bytes
from meshwright.cost.plan_report import closed_form
from meshwright.errors import InputError, Problem
from meshwright.plans.arrays.short_plans import short_plan
from meshwright.plans.choices.recompute import RECOMPUTES
from meshwright.plans.forms.short import Recompute, ShortPlan
from meshwright.plans.layers.recompute_by_layer import recomputes_from_stages
from meshwright.plans.layers.uneven_partition import written_stages
from meshwright.plans.setting import Setting
from meshwright.search.algorithms.exhaustive import RankedPlans
from meshwright.search.partition.balance import BALANCES, Unfit
from meshwright.search.partition.layer_chain import Chain
from meshwright.search.stage_rebalancing import RebalancedPlan, Recut, restaged, worth_restaging

WIDTH = 300
"""States that a search for stages keeps: tenths of a second for a plan."""


def restage(
    found: RankedPlans, header: ShortPlan, setting: Setting, stages: str, *, mixes: bool
) -> RebalancedPlan:
    """Return the plans found, with rebalanced stages for the best ones. Raise InputError for the schedule.

    ``mixes``: stages may recompute more than a plan says, where the stack can.
    """
    usable = usable_device_bytes(setting.cluster)
    words = _recomputes(setting) if mixes else ()
    leanest = words[-1] if words else None

    def recut_row(row: int) -> Recut | None:
        short = short_plan(found.plans, row, header)
        more = words[words.index(short.recompute) + 1 :] if short.recompute in words else words[-1:]
        choices = (short.recompute, *more)
        return recut(short, setting, stages, choices)

    worth = worth_restaging(found, lambda plans: evaluate(plans, setting), usable, leanest)
    one_way = [row for row in worth if short_plan(found.plans, row, header).pipeline.choice.kind.chains == 1]
    return restaged(found, one_way or worth, recut_row, stages)


def _recomputes(setting: Setting) -> tuple[Recompute, ...]:
    """Return the recomputations that stages may differ in, the least first; empty if all layers must agree."""
    known = tuple(word for word in RECOMPUTES if word in setting.stack.recomputes)
    return known if setting.stack.recomputes_any_layers else ()


def recut(short: ShortPlan, setting: Setting, aim: str, recomputes: Sequence[Recompute] = ()) -> Recut | None:
    """Return the best stages by ``aim`` that fit; None where there are none.

    Of the cuts by every aim, since lists that are made for the times of stages change with a cut, and what they hold.
    ``recomputes`` are what each stage may recompute, the plan's own first: with one stage a rank stages differ where
    the plan does not fit otherwise, and where that is quicker than whatever else all of them could recompute alike.
    Raises InputError for a schedule that has every layer on two ranks: a cut loads both.
    """
    kind = short.pipeline.choice.kind
    if kind.chains > 1:
        rule = (
            f"{short.pipeline.choice} has every layer on {kind.chains} ranks: its stages are not cut anew yet"
        )
        raise InputError(Problem("stages", aim, rule, "balanced"))
    own = _best_cut(short, setting, aim, (short.recompute,))
    if own is not None or len(recomputes) < 2 or short.pipeline.virtual_stages > 1:
        return own
    mixed = _best_cut(short, setting, aim, recomputes)
    if mixed is None or mixed.recomputes is None or short.recompute not in mixed.recomputes:
        return None
    alike = {
        word: _best_cut(short.model_copy(update={"recompute": word}), setting, aim, (word,))
        for word in recomputes[1:]
    }
    if any(cut is not None and cut.step_s <= mixed.step_s for cut in alike.values()):
        return None
    steps = {str(word): None if cut is None else cut.step_s for word, cut in alike.items()}
    return replace(mixed, alike={str(short.recompute): None} | steps)


def _merit(cut: Recut, aim: str) -> tuple[float, float]:
    """Return the sort key of a cut: smaller is better."""
    return (cut.total_bytes, cut.step_s) if aim == "memory" else (cut.step_s, cut.total_bytes)


def _best_cut(short: ShortPlan, setting: Setting, aim: str, recomputes: Sequence[Recompute]) -> Recut | None:
    """Return the best of the cuts by every aim, each stage with one of ``recomputes``."""
    costs = layer_costs(short, setting, recomputes)
    cuts = [cut for way in BALANCES if (cut := _cut(way, costs, short, setting, recomputes)) is not None]
    return min(cuts, key=lambda cut: _merit(cut, aim), default=None)


def _cut(
    way: str, costs: LayerCosts, short: ShortPlan, setting: Setting, recomputes: Sequence[Recompute]
) -> Recut | None:
    """Return the best stages by one aim for the current lists, with the plan's time and memory."""
    found = BALANCES[way](chain_of(costs), costs.capacity, WIDTH)
    if isinstance(found, Unfit):
        return None
    counts, of_stages = decoder_layers(found.counts), tuple(recomputes[mode] for mode in found.modes)
    of_layers = recomputes_from_stages(counts, of_stages)
    estimate = closed_form(short, setting, written_stages(counts), of_layers)
    total = max(sum(ledger.values()) for ledger in estimate.ledgers)
    if not fits(total, setting.cluster):
        return None
    differ = of_stages if len(set(of_stages)) > 1 else None
    return Recut(counts, sum(estimate.parts.values()), total, differ)


def chain_of(costs: LayerCosts) -> Chain:
    """Return the layers of a plan as a chain to be cut."""
    chain = Chain.of(
        costs.placement,
        forward=costs.forward,
        input_=costs.backward,
        states=costs.states,
        kept=costs.kept,
        in_flight=costs.in_flight,
    )
    return chain.holding(costs.held, costs.stops)


def decoder_layers(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the counts without the embedding in the first stage and the head in the last."""
    inner = [counts[0] - 1, *counts[1:]]
    return (*inner[:-1], inner[-1] - 1)
