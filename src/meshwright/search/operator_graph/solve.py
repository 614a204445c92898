"""Solve the schedule of a graph with branches: coarsen, solve, refine (as in arXiv 2503.09357).

1. *Coarsen* the operators to ``FEW`` stages, and to ``MORE`` (``coarsen.py``), and to ``MORE`` along the best chain.
2. *Solve*: ranks of the stages and their lists by local search (``local_search.py``), then, where there are few
passes or it
   is asked for, by constraint programming (``exact_cp_sat.py``).
3. *Refine* the stages at their borders (``refine_borders.py``).

Each only while the step is longer than a bound that no lists are below. The best chain (``best_chain.py``) is there
from the beginning, so that the answer is never longer than it, and what is in its cut can be refined too.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from time import monotonic

from meshwright.errors import InfeasibleError
from meshwright.schedules.solve import Effort
from meshwright.schedules.solve.constraint_programming import missing_solver
from meshwright.search.operator_graph.best_chain import ChainSolution, chain_graph, feasible_chains
from meshwright.search.operator_graph.coarsen import coarsened
from meshwright.search.operator_graph.exact_cp_sat import prove
from meshwright.search.operator_graph.graph import KINDS, Groups, merged, one_each
from meshwright.search.operator_graph.local_search import Walk
from meshwright.search.operator_graph.lower_bound import SOLVER, Bound, lower_bound
from meshwright.search.operator_graph.problem import RanksAndLists, Task
from meshwright.search.operator_graph.refine_borders import refined

FEW, MORE = 8, 20
"""Stages of coarse graphs."""
EXACT_PASSES = 300
"""Coarse graphs of so many passes are given to constraint programming without being asked for."""
FOR_WALKS, FOR_REFINING = 0.4, 0.2
"""Parts of the time: of local search where constraint programming follows, and of refining at least."""
CHAIN, LOCAL, EXACT, REFINED = "best chain", "local search", "constraint programming", "refinement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """An answer with a bound that no lists are below, the best chain, and how the answer was found."""

    answer: RanksAndLists
    bound: Bound
    chain: ChainSolution | None
    coarse: int
    found_by: str
    steps: int
    interrupted: bool

    @property
    def gap(self) -> float:
        """Return the excess of the step over its lower bound, as a fraction of the bound."""
        return self.answer.step / self.bound.step - 1

    @property
    def proven(self) -> bool:
        """Return true if the step equals its lower bound."""
        return self.answer.step <= self.bound.step


def solve(task: Task, effort: Effort) -> Solution:
    """Search. Raises InfeasibleError where nothing was found that keeps to the memory."""
    search = _Search(task, effort)
    search.run()
    return search.solution()


class _Search:
    """The best answer so far, of all and with each kind of stages, and the best bound."""

    def __init__(self, task: Task, effort: Effort) -> None:
        self.task, self.effort = task, effort
        self.bound, self.steps, self.interrupted = lower_bound(task), 0, False
        self.coarse = list(dict.fromkeys(coarsened(task, most) for most in (FEW, MORE)))
        self.best: RanksAndLists | None = None
        self.chain: ChainSolution | None = None
        self.found_by, self.begun = CHAIN, monotonic()
        self.with_groups: dict[Groups, RanksAndLists] = {}

    def run(self) -> None:
        """All steps, each within its part of the time; an interrupt ends them once there is an answer."""
        few, exact = self.coarse[0], self._is_exact
        for_walks = FOR_WALKS if exact else 1 - FOR_REFINING
        try:
            self._in_row()
            coarse = list(dict.fromkeys([*self.coarse, *self._along_row()]))
            for number, groups in enumerate(coarse, 1):
                self._walk(groups, for_walks * number / len(coarse))
            if exact and not self._is_over(1 - FOR_REFINING):
                self._prove(few)
            for better in refined(self.best, lambda: self._is_over(1.0)) if self.best else ():
                self._take(better, REFINED)
        except KeyboardInterrupt:
            if self.best is None:
                raise
            self.interrupted = True

    def _in_row(self) -> None:
        """Search the best chain; the time limit counts from its end."""
        for chain in feasible_chains(self.task):
            if self.chain is None or chain.step < self.chain.step:
                self.chain = chain
            self._take(chain.answer, CHAIN)
        self.begun = monotonic()

    def _along_row(self) -> Iterator[Groups]:
        """Coarse groups of neighbours in the row of the best chain: stages that no branch parts."""
        if self.chain:
            row = [operator for group in self.chain.answer.groups for operator in group]
            graph = chain_graph(self.task.graph, tuple((operator,) for operator in row))
            groups = coarsened(replace(self.task, graph=graph), MORE)
            yield tuple(tuple(sorted(row[place] for place in group)) for group in groups)

    @property
    def _is_exact(self) -> bool:
        """Return true if constraint programming is requested, or there are few passes and OR-tools is there."""
        passes = KINDS * len(self.coarse[0]) * self.task.micro_batches
        small = self.effort.method == "auto" and passes <= EXACT_PASSES and missing_solver() is None
        return self.effort.method == "exact" or small

    def _is_over(self, part: float) -> bool:
        """Return true if a part of the time is over, or the best step is proven optimal."""
        proven = self.best is not None and self.best.step <= self.bound.step
        return proven or monotonic() - self.begun > part * self.effort.seconds

    def _walk(self, groups: Groups, part: float) -> None:
        walk, most = Walk(self.task, groups, self._starts(groups), self.effort.seed), self.effort.steps
        try:
            walk.run(
                lambda: self._is_over(part) or (most is not None and walk.steps >= most), self.bound.step
            )
        finally:
            self.steps += walk.steps
            if walk.answer:
                self._take(walk.answer, LOCAL)

    def _starts(self, groups: Groups) -> list[tuple[int, ...]]:
        """Ranks to begin with: equal work in order, the largest to the idlest rank, and those of the best so far."""
        work = [cost.work for cost in merged(self.task.graph, groups).costs]
        ranks, before = self.task.ranks, list(accumulate(work, initial=0))
        middles = [a + b for a, b in pairwise(before)]
        row = tuple(min(ranks - 1, ranks * middle // max(1, 2 * before[-1])) for middle in middles)
        load, spread = [0] * ranks, [0] * len(groups)
        for stage in sorted(range(len(groups)), key=lambda stage: -work[stage]):
            spread[stage] = load.index(min(load))
            load[spread[stage]] += work[stage]
        return [row, tuple(spread), *([self._as_best(groups)] if self.best else [])]

    def _as_best(self, groups: Groups) -> tuple[int, ...]:
        """Return for each group the rank that has most of its work in the best answer."""
        assert self.best is not None
        homes = zip(self.best.groups, self.best.placement, strict=True)
        rank_of = {operator: rank for group, rank in homes for operator in group}
        found = []
        for group in groups:
            share = Counter[int]()
            for operator in group:
                share[rank_of[operator]] += self.task.graph.costs[operator].work + 1
            found.append(share.most_common(1)[0][0])
        return tuple(found)

    def _prove(self, groups: Groups) -> None:
        start = self.with_groups.get(groups)
        seconds = (1 - FOR_REFINING) * self.effort.seconds - (monotonic() - self.begun)
        proof = prove(self.task, groups, start, self.bound.step, seconds, self.effort.seed)
        self.interrupted = proof.interrupted
        if proof.found:
            self._take(proof.found, EXACT)
        if groups == one_each(self.task.graph):
            self.bound = max(self.bound, Bound(proof.bound, SOLVER))

    def _take(self, answer: RanksAndLists, by: str) -> None:
        known = self.with_groups.get(answer.groups)
        if known is None or answer.step < known.step:
            self.with_groups[answer.groups] = answer
        if self.best is None or answer.step < self.best.step:
            self.best, self.found_by = answer, by

    def solution(self) -> Solution:
        """Return the best solution found. Raise InfeasibleError where there is none."""
        task = self.task
        if self.best is None:
            least = max(cost.state + cost.kept for cost in task.graph.costs)
            together = sum(cost.state + cost.kept for cost in task.graph.costs)
            reasons = [
                f"states and one micro-batch of all operators take {together} bytes, "
                f"{-(-together // task.ranks)} for each of {task.ranks} ranks",
                f"those of the largest operator take {least} bytes",
            ]
            raise InfeasibleError(
                f"Nothing was found that keeps to {task.memory} bytes on each rank.",
                reasons,
                "more memory, more ranks, or smaller operators",
            )
        return Solution(
            answer=self.best,
            bound=self.bound,
            chain=self.chain,
            coarse=len(self.coarse[0]),
            found_by=self.found_by,
            steps=self.steps,
            interrupted=self.interrupted,
        )
