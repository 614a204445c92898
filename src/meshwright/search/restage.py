"""Stages cut anew for the best plans of a search, which gives all stages as equally many layers as there can be.

``recut`` is handed in: it cuts the stages of one plan and says what the plan comes to with them; this floor knows
plans, not costs. By time the new stages are kept where the step is shorter, by memory where the fullest device holds
less; of two that are equal in this, the one that is better in the other. Tried are the best plans, the best one with
each value of each choice, so that reasons compare like with like, and plans that did not fit with equal stages and may
with others, the quickest first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshwright.search.exhaustive import Evaluate, Found, ranked
from meshwright.search.reasons import FIELDS, Reason, against
from meshwright.units import format_bytes

TRIED = 32
"""So many plans that fit, and so many that do not."""
MOST_EXCESS = 1.5
"""A plan whose fullest device holds more than this times what is usable is not tried."""


@dataclass(frozen=True, slots=True)
class Recut:
    """Layers of every stage of a plan, and what it comes to with them."""

    counts: tuple[int, ...]
    step_s: float
    total_bytes: float


@dataclass(frozen=True)
class Restaged:
    """What was found, with the scores of plans whose stages are cut anew; ``counts`` by row.

    ``before`` is what was found with equal stages.
    """

    found: Found
    counts: Mapping[int, tuple[int, ...]]
    before: Found


def restaged(found: Found, rows: Sequence[int], recut: Callable[[int], Recut | None], aim: str) -> Restaged:
    """The plans at ``rows`` with better stages, where there are any; ``recut`` gives those that fit.

    By memory plans get slower, and those that were not tried go behind those that were.
    """
    step_s, total, fits = found.step_s.copy(), found.total_bytes.copy(), found.fits.copy()
    counts: dict[int, tuple[int, ...]] = {}
    for row in rows:
        cut = recut(row)
        if cut is None or (fits[row] and not _better(cut, found, row, aim)):
            continue
        step_s[row], total[row], fits[row] = cut.step_s, cut.total_bytes, True
        counts[row] = cut.counts
    ranking = ranked(step_s, total, fits)
    if aim == "memory":
        asked = np.isin(ranking, rows) | (found.plans.pp[ranking] == 1)
        ranking = np.concatenate([ranking[asked], ranking[~asked]])
    more = len(ranking) - len(found.ranking)
    scored = replace(
        found, step_s=step_s, total_bytes=total, fits=fits, ranking=ranking, too_large=found.too_large - more
    )
    return Restaged(scored, counts, found)


def _better(cut: Recut, found: Found, row: int, aim: str) -> bool:
    new, old = (cut.step_s, cut.total_bytes), (float(found.step_s[row]), float(found.total_bytes[row]))
    return new[::-1] < old[::-1] if aim == "memory" else new < old


def worth_restaging(found: Found, evaluate: Evaluate, usable_bytes: float) -> list[int]:
    """Rows of the plans with a pipeline that are tried."""
    rows = dict.fromkeys(
        [*found.ranking[:TRIED].tolist(), *_rivals(found), *_lacking(found, evaluate, usable_bytes)]
    )
    return [row for row in rows if found.plans.pp[row] > 1]


def _rivals(found: Found) -> list[int]:
    """The best plan that fits with each value of each choice."""
    firsts = [np.unique(getattr(found.plans, field)[found.ranking], return_index=True)[1] for field in FIELDS]
    return [int(found.ranking[first]) for first in np.concatenate(firsts)]


def _lacking(found: Found, evaluate: Evaluate, usable_bytes: float) -> list[int]:
    """The quickest of the plans that nearly fit, if with equal stages they were quicker than the best."""
    near = ~found.fits & (found.plans.pp > 1) & (found.total_bytes <= MOST_EXCESS * usable_bytes)
    rows = np.flatnonzero(near)
    if not len(rows):
        return []
    step_s = evaluate(found.plans.take(rows)).step_s
    limit = found.step_s[found.ranking[0]] if len(found.ranking) else np.inf
    order = np.argsort(step_s, kind="stable")[:TRIED]
    return [int(rows[i]) for i in order if step_s[i] < limit]


def explain_stages(restaged: Restaged, row: int) -> Reason:
    """What the plan at ``row`` comes to with equal stages."""
    before, now = restaged.before, restaged.found
    held = format_bytes(float(before.total_bytes[row]))
    if before.fits[row]:
        text = f"balanced: {against(float(before.step_s[row]), float(now.step_s[row]))}, {held}"
    else:
        text = f"does not fit with balanced stages ({held})"
    counts = restaged.counts[row]
    return Reason("stages", f"embed + {' | '.join(map(str, counts))} + head", text)
