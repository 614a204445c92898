"""Find the single best plan below a time limit: evaluate plans in the order of their lower bounds.

A search that says why evaluates much beside the best plan: the best with each other value of each choice, and all that
tie with it. Where many spaces are compared, only their best plans count, and those only below a time at which another
space is better anyhow. What is found is the first plan of the ranking of ``exhaustive.py``, memory among equal times
included; nothing, where no plan that fits is below what is enough.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.search.algorithms.exhaustive import TIE, Evaluate, Floats, ranked

FIRST, MORE = 16, 4
"""Plans that are evaluated at first, and how many times as many in each next turn."""
ROOM = 1 + TIE
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Best:
    """A plan alone, and the seconds of its step."""

    plans: PlanArrays
    step_s: float


def best_below(
    floors: Floats, take: Callable[[Rows], PlanArrays], evaluate: Evaluate, enough: float = np.inf
) -> Best | None:
    """Return the best plan that fits; None where it takes ``enough`` seconds or more, or nothing fits.

    ``floors``: (n,) no step is shorter, infinite for plans that can not fit. ``take`` makes plans of rows, one or more
    of each.
    """
    order = np.argsort(floors, kind="stable")
    taken: list[PlanArrays] = []
    seen: list[tuple[Floats, Floats, NDArray[np.bool_]]] = []
    at, count, best = 0, FIRST, enough
    while at < len(order):
        rows = order[at : at + count][floors[order[at : at + count]] <= _enough(best, enough)]
        rows = rows[np.isfinite(floors[rows])]
        if not len(rows):
            break
        taken.append(take(rows))
        scores = evaluate(taken[-1])
        seen.append((scores.step_s, scores.total_bytes, scores.fits))
        best = min(best, float(scores.step_s[scores.fits].min(initial=np.inf)))
        at, count = at + count, count * MORE
    if best >= enough or not seen:
        return None
    step_s, total, fits = (np.concatenate(part) for part in zip(*seen, strict=True))
    first = int(ranked(step_s, total, fits)[0])
    ends = np.cumsum([len(plans) for plans in taken])
    part = int(np.searchsorted(ends, first, side="right"))
    return Best(taken[part].take(np.array([first - ends[part]])), float(step_s[first]))


def _enough(best: float, enough: float) -> float:
    """Return the bound in seconds above which a plan is skipped: a leaner plan may be slightly slower."""
    return best if best >= enough else best * ROOM
