"""Improve cuts with several stages per rank: recut window after window until none gets better.

Each window of stages on distinct ranks is cut as well as it can be with the rest as it is (``exact_window.py``), so the
largest load never grows; where it can not shrink, the sum of squares does. What comes out is no worse than what went
in, and need not be the best: ``lower_bound.py`` and ``rank_by_rank_search.py`` say whether it is.
"""

from collections.abc import Sequence

from meshwright.search.partition.exact_window import recut
from meshwright.search.partition.layer_chain import Cut
from meshwright.search.partition.objective import ALIKE, Task

WORTH = 1e-9
"""A sum of squares that is smaller by less is no smaller."""


def windows(placement: Sequence[int]) -> list[range]:
    """Return the longest runs of stages on distinct ranks."""
    found: list[range] = []
    for first in range(len(placement)):
        last = first
        while last < len(placement) and placement[last] not in placement[first:last]:
            last += 1
        if not found or last > found[-1].stop:
            found.append(range(first, last))
    return found


def descended(task: Task, cut: Cut) -> Cut:
    """Improve a cut until no window makes it better; ``cut`` keeps the limit."""
    order = windows(task.chain.placement)
    seen = merit(task, cut)
    while True:
        for stages in order:
            cut = recut(task, cut, stages) or cut
        now = merit(task, cut)
        if not _better(now, seen):
            return cut
        seen = now


def merit(task: Task, cut: Cut) -> tuple[float, float]:
    """Return the largest load and the stages' sum of squares; the smaller pair is the better cut."""
    return float(task.loads(cut).max()), float((task.stage_costs(cut) ** 2).sum())


def _better(one: tuple[float, float], other: tuple[float, float]) -> bool:
    shorter, longer = one[0] < other[0] * (1 - ALIKE), one[0] > other[0] * (1 + ALIKE)
    return shorter or (not longer and one[1] < other[1] * (1 - WORTH))


def even_cut(layers: int, stages: int) -> Cut:
    """As equally many layers on every stage as there can be, in the first mode."""
    return Cut(tuple(round(layers * stage / stages) for stage in range(stages + 1)), (0,) * stages)
