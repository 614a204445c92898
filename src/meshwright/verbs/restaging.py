"""Cut the stages of a plan anew, by time or by memory, and predict the plan with them."""

from meshwright.cost.constants import constants
from meshwright.cost.evaluate import evaluate
from meshwright.cost.layer_costs import LayerCosts, layer_costs
from meshwright.cost.memory import fits
from meshwright.cost.predict import closed_form
from meshwright.errors import InputError, Problem, nearest
from meshwright.plan.partition import written_stages
from meshwright.plan.setting import Setting
from meshwright.plan.short import ShortPlan
from meshwright.search.exhaustive import Found
from meshwright.search.partition.balance import BALANCES, Unfit
from meshwright.search.partition.chain import Chain
from meshwright.search.restage import Recut, Restaged, restaged, worth_restaging

WIDTH = 300
"""States that a search for stages keeps: tenths of a second for a plan."""


def restage(found: Found, header: ShortPlan, setting: Setting, stages: str) -> Restaged:
    """What was found, with stages cut anew for the best plans. Raises InputError."""
    if stages not in BALANCES:
        names = ("balanced", *BALANCES)
        raise InputError(Problem("stages", stages, "is no way to cut stages", nearest(stages, names)))
    usable = constants()["usable_memory"] * setting.cluster.pool.device.memory_bytes
    worth = worth_restaging(found, lambda plans: evaluate(plans, setting), usable)
    one_way = [row for row in worth if found.plans.short(row, header).pipeline.choice.kind.chains == 1]
    rows = one_way or worth
    return restaged(found, rows, lambda row: recut(found.plans.short(row, header), setting, stages), stages)


def recut(short: ShortPlan, setting: Setting, aim: str) -> Recut | None:
    """The stages that are best by ``aim`` and fit; None where there are none or they do not fit after all.

    Of the cuts by every aim, since lists that are made for the times of stages change with a cut, and what they hold.
    Raises InputError for a schedule that has every layer on two ranks: a cut loads both.
    """
    kind = short.pipeline.choice.kind
    if kind.chains > 1:
        rule = (
            f"{short.pipeline.choice} has every layer on {kind.chains} ranks: its stages are not cut anew yet"
        )
        raise InputError(Problem("stages", aim, rule, "balanced"))
    costs = layer_costs(short, setting)
    cuts = [cut for way in BALANCES if (cut := _cut(way, costs, short, setting)) is not None]
    if aim == "memory":
        return min(cuts, key=lambda cut: (cut.total_bytes, cut.step_s), default=None)
    return min(cuts, key=lambda cut: (cut.step_s, cut.total_bytes), default=None)


def _cut(way: str, costs: LayerCosts, short: ShortPlan, setting: Setting) -> Recut | None:
    """The stages that are best one way by the lists as they were, and what the plan comes to with them."""
    found = BALANCES[way](chain_of(costs), costs.capacity, WIDTH)
    if isinstance(found, Unfit):
        return None
    counts = decoder_layers(found.counts)
    estimate = closed_form(short, setting, written_stages(counts))
    total = max(sum(ledger.values()) for ledger in estimate.ledgers)
    if not fits(total, setting.cluster.pool.device.memory_bytes):
        return None
    return Recut(counts, sum(estimate.parts.values()), total)


def chain_of(costs: LayerCosts) -> Chain:
    """The layers of a plan as a chain to be cut."""
    chain = Chain.of(
        costs.placement,
        forward=costs.forward,
        input_=costs.backward,
        states=costs.states,
        kept=costs.kept[None],
        in_flight=costs.in_flight,
    )
    return chain.holding(costs.held, costs.stops)


def decoder_layers(counts: tuple[int, ...]) -> tuple[int, ...]:
    """The same without the embedding, the first of the first stage, and the head, the last of the last."""
    inner = [counts[0] - 1, *counts[1:]]
    return (*inner[:-1], inner[-1] - 1)
