"""Solve a partition task: exact with one stage per rank, otherwise proven by a bound or a full search.

With several: cuts that no window improves (``window_descent.py``), held against the packing bound
(``lower_bound.py``); while that leaves a gap, better ones are looked for among ever more states
(``rank_by_rank_search.py``).
"""

from dataclasses import dataclass, replace

import numpy as np

from meshwright.search.partition.chunk_directions import directed_chunks
from meshwright.search.partition.exact_window import recut
from meshwright.search.partition.layer_chain import Cut
from meshwright.search.partition.lower_bound import least_load
from meshwright.search.partition.objective import ALIKE, Task
from meshwright.search.partition.rank_by_rank_search import RankByRankSearch
from meshwright.search.partition.window_descent import descended, even_cut, merit

NARROW, WIDTH = 300, 10_000
"""States that a search keeps at first, and at last."""
PROVEN = 1e-9
"""A bound that is nearer to a load, relatively, is that load."""


@dataclass(frozen=True, slots=True)
class Solved:
    """A cut that keeps the limit and its largest load; ``bound``: no such cut has a smaller one.

    Without a cut both are infinite where there is none, and the bound is 0 where none was found; ``nearest`` is the cut
    that is least above the limit then.
    """

    cut: Cut | None
    load: float
    bound: float
    nearest: Cut | None = None

    @property
    def proven(self) -> bool:
        """No cut is better, or there is none."""
        return self.bound >= self.load * (1 - PROVEN)


def solved(task: Task, width: int = WIDTH, enough: float = 0.0) -> Solved:
    """Return the best cut found, or the first with load at most ``enough``, and its lower bound."""
    layers, stages = task.chain.layers, len(task.chain.placement)
    if stages == task.chain.ranks:
        cut = recut(task, even_cut(layers, stages), range(stages))
        if cut is None:
            return Solved(None, np.inf, np.inf, solved(least_excess(task)).cut)
        load = float(task.loads(cut).max())
        return Solved(cut, load, load)
    starts = _starts(task, width)
    if isinstance(starts, Solved):
        return starts
    cuts = [descended(task, start) for start in starts]
    return _searched(task, min(cuts, key=lambda cut: merit(task, cut)), width, enough)


def _starts(task: Task, width: int) -> list[Cut] | Solved:
    """Cuts that keep the limit; the answer where there is none or none was found."""
    layers, stages = task.chain.layers, len(task.chain.placement)
    even = even_cut(layers, stages)
    starts = [even, recut(task.as_ranks(), even, range(stages)) or even]
    allowed = [cut for cut in starts if task.allows(cut)]
    if allowed:
        return allowed
    room = float(task.most.max()) * (1 + ALIKE)
    least = solved(least_excess(task), width, enough=room)
    assert least.cut is not None, "without a limit there is a cut"
    if task.allows(least.cut):
        return [least.cut]
    return Solved(None, np.inf, np.inf if least.bound > room else 0.0, least.cut)


def least_excess(task: Task) -> Task:
    """Return the task that minimises the excess above the limit, as a task without a limit."""
    room = float(task.most.max()) - task.most
    return Task.free(task.chain, replace(task.limit, base=task.limit.base + room))


def _searched(task: Task, cut: Cut, width: int, enough: float) -> Solved:
    """Better cuts looked for until the bound, or what is enough, is reached."""
    load = float(task.loads(cut).max())
    bound, legs = least_load(task, load), directed_chunks(task.chain.placement)
    for states in sorted({min(NARROW, width), width}):
        if bound >= load * (1 - PROVEN) or load <= enough or legs is None:
            break
        dealer = RankByRankSearch(task, legs, load, states)
        cut = descended(task, dealer.better() or cut)
        load = float(task.loads(cut).max())
        bound = load if dealer.complete else bound
    return Solved(cut, load, bound)
