"""Search the paths of micro-batches by conflicts: conflict-based search with continuous time (SkipPipe's method).

A node of the search tree is a set of constraints. Every micro-batch takes its best path under its own constraints, as
if it were alone; a conflict between them branches into the constraints of which every solution keeps one
(``path_conflicts.py``). The tree is searched by makespan, so that the first node without conflicts is optimal.
``path_repair.py`` gives a first solution, which bounds the tree, and the answer where the tree is cut.
"""

import heapq
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import inf

from meshwright.simulate.churn.paths.path_conflicts import (
    Constraint,
    collisions,
    conflict_of_paths,
    first_conflict,
)
from meshwright.simulate.churn.paths.path_dispatch import dispatched
from meshwright.simulate.churn.paths.path_problem import PathProblem, TimedPath, makespan
from meshwright.simulate.churn.paths.path_repair import repaired_paths

TREE_NODES = 20_000


@dataclass(frozen=True, slots=True)
class FoundPaths:
    """Paths without conflicts. ``bound_s``: no solution is faster; that is the makespan where they are optimal."""

    timed: tuple[TimedPath, ...]
    bound_s: float
    tree_nodes: int

    @property
    def makespan_s(self) -> float:
        """The end of the last micro-batch, in seconds."""
        return makespan(self.timed)

    @property
    def optimal(self) -> bool:
        """Return true if nothing is faster."""
        return self.bound_s >= self.makespan_s * (1 - 1e-12)


def search_paths(problem: PathProblem, tree_nodes: int = TREE_NODES, seed: int = 0) -> FoundPaths | None:
    """Return the best paths that were found; None if there are none.

    ``tree_nodes``: the search stops after so many nodes of its tree.
    """
    best = repaired_paths(problem, seed)
    best_s = makespan(best) if best else inf
    turns = first_turns(problem)
    first = _all([best_path(problem, at, turns) for at in problem.micro_batches])
    if first is None:
        return None
    number = 0
    heap: list[tuple[float, int, int, tuple[Constraint, ...], tuple[TimedPath, ...]]]
    floor_s = first_nodes_s(problem)
    heap = [(*_key(first, floor_s), 0, turns, first)]
    seen: set[Hashable] = set()
    while heap and heap[0][0] < best_s * (1 - 1e-12) and number < tree_nodes:
        _, _, _, constraints, timed = heapq.heappop(heap)
        choices = first_conflict(problem, timed)
        tried = timed
        if not conflict_of_paths(problem, timed) and choices:
            tried = dispatched(problem, [one.path for one in timed])
        if (not choices or tried is not timed) and makespan(tried) < best_s:
            best, best_s = tried, makespan(tried)
        if not choices:
            break
        for choice in choices:
            more = (*constraints, choice)
            if (key := _up_to_order(problem, more)) in seen:
                continue
            seen.add(key)
            path = best_path(problem, choice.micro_batch, more)
            if path is None or path.end_s >= best_s:
                continue
            changed = tuple(path if at == choice.micro_batch else old for at, old in enumerate(timed))
            number += 1
            heapq.heappush(heap, (*_key(changed, floor_s), number, more, changed))
    if not best:
        return None
    return FoundPaths(tuple(best), min(best_s, heap[0][0]) if heap else best_s, number)


def _all(paths: Sequence[TimedPath | None]) -> tuple[TimedPath, ...] | None:
    """Return the paths, None if one is missing."""
    found = tuple(path for path in paths if path is not None)
    return found if len(found) == len(paths) else None


def _key(timed: Sequence[TimedPath], floor_s: float) -> tuple[float, int]:
    """Return the makespan, at least ``floor_s``, and how many conflicts there are between passes."""
    return max(floor_s, makespan(timed)), len(collisions(timed))


def first_nodes_s(problem: PathProblem) -> float:
    """Return when all passes on the busiest first node have ended at the earliest."""
    works = dict.fromkeys(problem.starts, 0.0)
    for node in problem.starts:
        works[node] += problem.forward_s[node] + problem.backward_s[node]
        works[node] += problem.head_s[node] if problem.head_s else 0.0
    return max(works.values())


def _up_to_order(problem: PathProblem, constraints: Sequence[Constraint]) -> Hashable:
    """Return constraints in a form that does not tell micro-batches from each other that begin alike."""
    own: dict[int, list[tuple[object, ...]]] = {at: [] for at in problem.micro_batches}
    for one in constraints:
        own[one.micro_batch].append(tuple(one)[1:])
    releases = problem.releases or (0.0,) * len(problem.starts)
    alike = [(problem.starts[at], releases[at], frozenset(mine)) for at, mine in own.items()]
    return frozenset(Counter(alike).items())


def first_turns(problem: PathProblem) -> tuple[Constraint, ...]:
    """Return that micro-batches which begin alike begin in the order of their numbers, one after the other.

    They can change places in every solution, so that this excludes no makespan.
    """
    before: Counter[tuple[int, float]] = Counter()
    turns = []
    for micro_batch, node in enumerate(problem.starts):
        release_s = problem.releases[micro_batch] if problem.releases else 0.0
        turn_s = release_s + before[node, release_s] * problem.forward_s[node]
        turns.append(Constraint(micro_batch, "wait", node, "F", (0.0, turn_s)))
        before[node, release_s] += 1
    return tuple(turns)


def best_path(problem: PathProblem, micro_batch: int, constraints: Sequence[Constraint]) -> TimedPath | None:
    """Return a micro-batch's best path under its constraints, None if it has none."""
    own = [one for one in constraints if one.micro_batch == micro_batch]
    left_out = {one.where for one in own if one.what == "leave out"}
    needed = {one.where for one in own if one.what == "visit"}
    avoided = {one.where for one in own if one.what == "avoid"}
    forbidden: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for one in own:
        if one.what == "wait":
            forbidden.setdefault((one.where, one.kind), []).append(one.when)
    best: TimedPath | None = None
    for alone in problem.paths(micro_batch):
        if best is not None and alone.end_s >= best.end_s:
            break
        stages = problem.stages_visited(alone.path)
        if left_out & stages or not needed <= stages or avoided & set(alone.path):
            continue
        timed = problem.timed(micro_batch, alone.path, forbidden) if forbidden else alone
        if best is None or timed.end_s < best.end_s:
            best = timed
    return best
