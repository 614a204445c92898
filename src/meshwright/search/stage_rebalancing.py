"""Rebalanced pipeline stages for the best plans of a search, which enumerates equal stages only.

``recut`` is handed in: it cuts the stages of one plan and says what the plan comes to with them; this floor knows
plans, not costs. By time the new stages are kept where the step is shorter, by memory where the fullest device holds
less; of two that are equal in this, the one that is better in the other. Tried are the best plans, the best one with
each value of each choice, so that reasons compare like with like, and plans that did not fit with equal stages and may
with others, the quickest first. Where layers may recompute different things a plan may fit whose early stages, which
hold the most micro-batches, recompute more than it says; it is the plan that says the least of its stages' choices.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from meshwright.plans.forms.short import Recompute
from meshwright.search.algorithms.exhaustive import Evaluate, RankedPlans, ranked
from meshwright.search.choice_reasons import FIELDS, relative_step_time
from meshwright.search.reasons import Reason
from meshwright.units import format_bytes

TRIED = 32
"""So many plans that fit, and so many that do not."""
BY_STAGE = "recompute by stage"
"""What the reason is called for stages that recompute different things."""
MOST_EXCESS = 1.5
"""A plan whose fullest device holds more than this times what is usable is not tried."""


@dataclass(frozen=True, slots=True)
class Recut:
    """Layers of every stage of a plan, and what it comes to with them.

    ``recomputes`` is what each stage recomputes, where not all do as the plan says; ``alike`` is then, by what all
    stages could recompute instead, what the plan comes to with the best stages for that: None where it does not fit.
    """

    counts: tuple[int, ...]
    step_s: float
    total_bytes: float
    recomputes: tuple[Recompute, ...] | None = None
    alike: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class RebalancedPlan:
    """The ranked plans, with the scores of those with rebalanced stages; ``cuts`` by row.

    ``before`` is what was found with equal stages.
    """

    found: RankedPlans
    cuts: Mapping[int, Recut]
    before: RankedPlans


def restaged(
    found: RankedPlans, rows: Sequence[int], recut: Callable[[int], Recut | None], aim: str
) -> RebalancedPlan:
    """Rebalance the stages of the plans at ``rows`` if it helps; ``recut`` returns cuts that fit.

    By memory plans get slower, and those that were not tried go behind those that were.
    """
    step_s, total, fits = found.step_s.copy(), found.total_bytes.copy(), found.fits.copy()
    cuts: dict[int, Recut] = {}
    for row in rows:
        cut = recut(row)
        if cut is None or (fits[row] and not _better(cut, found, row, aim)):
            continue
        step_s[row], total[row], fits[row] = cut.step_s, cut.total_bytes, True
        cuts[row] = cut
    ranking = ranked(step_s, total, fits)
    if aim == "memory":
        tried = np.isin(ranking, rows) | (found.plans.pp[ranking] == 1)
        ranking = np.concatenate([ranking[tried], ranking[~tried]])
    more = len(ranking) - len(found.ranking)
    scored = replace(
        found, step_s=step_s, total_bytes=total, fits=fits, ranking=ranking, too_large=found.too_large - more
    )
    return RebalancedPlan(scored, cuts, found)


def _better(cut: Recut, found: RankedPlans, row: int, aim: str) -> bool:
    new, old = (cut.step_s, cut.total_bytes), (float(found.step_s[row]), float(found.total_bytes[row]))
    return new[::-1] < old[::-1] if aim == "memory" else new < old


def worth_restaging(
    found: RankedPlans, evaluate: Evaluate, usable_bytes: float, leanest: Recompute | None = None
) -> list[int]:
    """Rows of the plans with a pipeline that are tried.

    ``leanest``: what stages may recompute where a plan recomputes less; None where all stages do as the plan says.
    """
    lacking = _lacking(found, evaluate, usable_bytes, leanest)
    rows = dict.fromkeys([*found.ranking[:TRIED].tolist(), *_rivals(found), *lacking])
    return [row for row in rows if found.plans.pp[row] > 1]


def _rivals(found: RankedPlans) -> list[int]:
    """Return the best plan that fits with each value of each choice."""
    firsts = [np.unique(getattr(found.plans, field)[found.ranking], return_index=True)[1] for field in FIELDS]
    return [int(found.ranking[first]) for first in np.concatenate(firsts)]


def _lacking(
    found: RankedPlans, evaluate: Evaluate, usable_bytes: float, leanest: Recompute | None
) -> list[int]:
    """Return the quickest plans that nearly fit, if with equal stages they were quicker than the best.

    Where stages may recompute more than a plan says, one stage a rank, those nearly fit that would if all did.
    """
    least, rows = found.total_bytes, np.flatnonzero(~found.fits & (found.plans.pp > 1))
    alone = rows[found.plans.virtual_stages[rows] == 1]
    if leanest is not None and len(alone):
        most = np.full(len(alone), found.plans.values["recompute"].index(leanest))
        lean = evaluate(found.plans.take(alone).with_columns({"recompute": most})).total_bytes
        least = least.copy()
        least[alone] = np.minimum(least[alone], lean)
    rows = rows[least[rows] <= MOST_EXCESS * usable_bytes]
    if not len(rows):
        return []
    step_s = evaluate(found.plans.take(rows)).step_s
    limit = found.step_s[found.ranking[0]] if len(found.ranking) else np.inf
    order = np.argsort(step_s, kind="stable")[:TRIED]
    return [int(rows[i]) for i in order if step_s[i] < limit]


def explain_stages(restaged: RebalancedPlan, row: int) -> list[Reason]:
    """Return reasons for the stages of the plan at ``row``: equal stages, one recomputation for all."""
    recomputation = _explained_recomputation(restaged.cuts[row])
    return [*recomputation, _explained_stages(restaged, row)]


def _explained_recomputation(cut: Recut) -> list[Reason]:
    """Return the reason why stages recompute differently; empty where they do not."""
    if cut.recomputes is None:
        return []
    words = [choice if isinstance(choice, str) else "+".join(choice) for choice in cut.recomputes]
    others = [
        f"{word} on all: {'does not fit' if step_s is None else relative_step_time(step_s, cut.step_s)}"
        for word, step_s in cut.alike.items()
    ]
    return [Reason(BY_STAGE, " | ".join(words), "; ".join(others))]


def _explained_stages(restaged: RebalancedPlan, row: int) -> Reason:
    before, now = restaged.before, restaged.found
    held = format_bytes(float(before.total_bytes[row]))
    if before.fits[row]:
        text = f"balanced: {relative_step_time(float(before.step_s[row]), float(now.step_s[row]))}, {held}"
    else:
        text = f"does not fit with balanced stages ({held})"
    counts = restaged.cuts[row].counts
    return Reason("stages", f"embed + {' | '.join(map(str, counts))} + head", text)
