"""Propose plans by ranges of layers that are better than every plan with one layout."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from meshwright.cost.closed_form.layout_groups import layout_group
from meshwright.cost.plan_report import as_array, group_estimate, report
from meshwright.cost.uncertainty.features_error import log_errors
from meshwright.cost.uncertainty.memory_error import fits_in_draws
from meshwright.cost.uncertainty.regret import CLOSE, Regret, regrets
from meshwright.plans.arrays.plan_arrays import joined_plans
from meshwright.plans.forms.conversion import short_of_only_layout
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.layout_by_layer import format_layout_ranges
from meshwright.plans.layers.plan_of_layout import plan_of_main_layout
from meshwright.plans.layers.recompute_by_layer import format_layer_recomputes, layer_recomputes
from meshwright.plans.setting import Setting
from meshwright.search.algorithms.exhaustive import RankedPlans
from meshwright.search.choice_reasons import relative_step_time
from meshwright.search.reasons import Reason
from meshwright.verbs.plan.layers.range_search import (
    RangedPlan,
    RangeSearch,
    pipeline_of,
    search_ranges,
    uses_ranges,
)
from meshwright.verbs.plan.proposal import Proposal
from meshwright.verbs.plan.recommendation import Recommend, Recommended
from meshwright.verbs.plan.search_space import Scope

LAYERS = ("auto", "uniform", "ranges")
"""Ways to choose layouts and recomputation: for all layers, by ranges of them, or by ranges where nothing else fits."""
Layers = Literal["auto", "uniform", "ranges"]
FIELD = "layers"
RIVALS = 16
"""Plans with one layout that plans by ranges are compared with: so many of the least regret, and of the fastest."""
MOST_PLANS = 20
"""Plans by ranges that are compared, the quickest."""
PIPELINES = 4
"""Pipelines of the best plans with one layout that are searched first."""


@dataclass(frozen=True)
class RangeAnswer:
    """The search for plans whose layers differ: ``gain`` over the best plan with one layout, in parts of its step.

    ``fastest`` is the quickest of them, proposed or not; None where nothing was found.
    """

    search: RangeSearch
    proposals: tuple[Proposal, ...]
    gain: float | None
    fastest: Proposal | None

    def to_json(self) -> dict[str, Any]:
        """Return the public form; seconds, and parts of a step."""
        best = self.search.plans[0].step_s if self.search.plans else None
        return {
            "step_time_s": best,
            "gain": self.gain,
            "bound_s": self.search.bound_s,
            "gap": self.search.gap,
            "pipelines": self.search.pipelines,
            "pipelines_searched": self.search.searched,
            "proposed": len(self.proposals),
        }


def ranged_answer(
    found: RankedPlans,
    known: Recommended | None,
    header: ShortPlan,
    setting: Setting,
    scope: Scope,
    aim: Recommend,
) -> RangeAnswer:
    """Search plans by ranges of layers, and propose the ones better than the plans ``found``.

    Better is a p80 regret that is less by one point (``CLOSE``), or a shorter step where the fastest are recommended.
    """
    rows = found.ranking[:PIPELINES].tolist()
    near = tuple(dict.fromkeys(pipeline_of(found.plans, row) for row in rows))
    best_s = float(found.step_s[found.ranking].min(initial=np.inf))
    search = search_ranges(scope, header, setting, best_s, near)
    plans = [one for one in search.plans if known is None or uses_ranges(one.plan)][:MOST_PLANS]
    search = replace(search, plans=tuple(plans))
    gain = 1 - plans[0].step_s / best_s if plans and np.isfinite(best_s) else None
    better = _one_of_each(_better(plans, found, known, setting, aim))
    proposals = tuple(_proposal(one, regret, setting, best_s) for one, regret in better)
    first = next((one for one in proposals if plans and one.long == plans[0].plan), None)
    if plans and first is None:
        first = _proposal(plans[0], None, setting, best_s)
    return RangeAnswer(search, proposals, gain, first)


def _better(
    plans: Sequence[RangedPlan],
    found: RankedPlans,
    known: Recommended | None,
    setting: Setting,
    aim: Recommend,
) -> list[tuple[RangedPlan, Regret | None]]:
    """Return the plans that are better than every plan with one layout, the recommended one first."""
    if known is None or not plans:
        return [(one, None) for one in plans]
    if aim == "fastest":
        least = float(found.step_s[found.ranking].min(initial=np.inf))
        return [(one, None) for one in plans if one.step_s < least]
    regret = _regrets(plans, found, known, setting)
    own, others = regret[: len(plans)], regret[len(plans) :]
    limit = min(other.p80 for other in others) - CLOSE
    order = sorted(range(len(plans)), key=lambda at: (own[at].p80, plans[at].step_s))
    return [(plans[at], own[at]) for at in order if own[at].p80 < limit]


def _one_of_each(
    ranked: Sequence[tuple[RangedPlan, Regret | None]],
) -> list[tuple[RangedPlan, Regret | None]]:
    """Return the first plan with each pipeline and layout of most layers; others differ from it in little."""
    first: dict[str, tuple[RangedPlan, Regret | None]] = {}
    for one in ranked:
        short = short_of_only_layout(plan_of_main_layout(one[0].plan))
        first.setdefault(short.layout.model_dump_json(), one)
    return list(first.values())


def _regrets(
    plans: Sequence[RangedPlan], found: RankedPlans, known: Recommended, setting: Setting
) -> list[Regret]:
    """Return the regrets of plans by ranges, then of the strongest plans with one layout, all against each other."""
    by_regret = sorted(known.regret, key=lambda row: known.regret[row].p80)[:RIVALS]
    fastest = sorted(known.regret, key=lambda row: float(found.step_s[row]))[:RIVALS]
    uniform = np.array(sorted({*by_regret, *fastest}), dtype=np.int64)
    step_s = np.concatenate([[one.step_s for one in plans], found.step_s[uniform]])
    held = np.concatenate([[one.total_bytes for one in plans], found.total_bytes[uniform]])
    every = found.plans.take(uniform)
    for one in reversed(plans):
        every = joined_plans(as_array(one.plan, setting), every)
    errors = log_errors(every, setting)
    return regrets(step_s, errors, fits_in_draws(held, setting, len(errors)))


def _proposal(one: RangedPlan, regret: Regret | None, setting: Setting, best_s: float) -> Proposal:
    plan = one.plan
    short = short_of_only_layout(plan_of_main_layout(plan))
    found = report(plan, group_estimate(layout_group(plan, setting)), setting)
    if np.isfinite(best_s):
        text = f"one layout for all layers: {relative_step_time(best_s, one.step_s)}"
    else:
        text = "no plan with one layout for all layers fits"
    value = format_layout_ranges(plan) if len(plan.layouts) > 1 else _recomputes(plan, setting)
    text += "" if plan.pipeline.stages == "balanced" else "; stages of unlike numbers of layers"
    return Proposal(short, found, (Reason(FIELD, value, text),), plan, regret=regret)


def _recomputes(plan: Any, setting: Setting) -> str:
    return "recompute " + format_layer_recomputes(layer_recomputes(plan, setting.model.architecture.layers))


def by_range(proposal: Proposal) -> bool:
    """Return true if layers of a proposed plan have several layouts."""
    return proposal.long is not None and len(proposal.long.layouts) > 1
