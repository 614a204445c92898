"""Find the shortest lists for a pipeline in a given time, and their distance from a lower bound.

Three steps, each only as long as the lists are longer than the bound (``lower_bounds.py``). The lists of all
schedules that fit into memory (``initial_schedules.py``). Local search from each of them: rounds of equally many
steps, after each the worse half is left (``tabu_search.py``). Constraint programming, for pipelines of few passes or
where asked for, if it is installed (``constraint_programming.py``). The answer is never longer than the best seed,
and an interrupt returns the best so far.

A makespan is that of ``timeline.py``: the longest span of a rank. Of equally long lists those with the least latency
that were met are taken. Where a task's goal is the latency, that stands in place of the makespan throughout.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from time import monotonic
from typing import Literal, NamedTuple

from meshwright.errors import InfeasibleError, InputError
from meshwright.schedules.action import Action
from meshwright.schedules.integer_times import whole_times
from meshwright.schedules.pipeline import PASS_MEMORY, Pipeline
from meshwright.schedules.solve.constraint_programming import missing_solver, prove
from meshwright.schedules.solve.initial_schedules import seeds
from meshwright.schedules.solve.lower_bounds import Bound, lower_bound
from meshwright.schedules.solve.precedence_graph import PrecedenceGraph
from meshwright.schedules.solve.solver_input import SolverInput
from meshwright.schedules.solve.tabu_search import Found, TabuSearch
from meshwright.schedules.split_backward.pass_numbers import numbered
from meshwright.schedules.split_backward.pipeline_state import EPSILON

Method = Literal["auto", "exact", "local"]
METHODS: tuple[Method, ...] = ("auto", "exact", "local")
EXACT_PASSES = 400
"""Pipelines of so many passes are given to constraint programming without being asked for."""
FOR_WALKS, MOST_FOR_WALKS = 0.2, 5.0
"""Part of the time before constraint programming, and seconds of it at most."""
ROUND = 400
"""Steps of the first round from each seed."""
LOCAL, EXACT = "local search", "constraint programming"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Limits of a search: it ends after ``seconds``, or after ``steps`` of local search where these are set."""

    seconds: float = 60.0
    steps: int | None = None
    seed: int = 0
    method: Method = "auto"


class SolverProgress(NamedTuple):
    """The shortest makespan so far, what none is below, and the part of the time that is over."""

    makespan: float
    bound: float
    part: float

    def in_unit(self, ticks: float) -> "SolverProgress":
        """Return the progress with times divided by ``ticks``."""
        return SolverProgress(self.makespan / ticks, self.bound / ticks, self.part)


ReportSolverProgress = Callable[[SolverProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Lists for a pipeline, with makespan and bound in the unit of its times.

    ``found_by`` is the schedule of the table whose lists they are, or the kind of search that made them shorter;
    ``best_seed`` the schedule with the shortest lists before, of ``seed_makespan``.
    """

    lists: list[list[Action]]
    makespan: float
    bound: float
    bound_reason: str
    found_by: str
    best_seed: str
    seed_makespan: float
    steps: int
    interrupted: bool

    def in_unit(self, ticks: float) -> "Solution":
        """Return the solution with times divided by ``ticks``."""
        return replace(
            self,
            makespan=self.makespan / ticks,
            bound=self.bound / ticks,
            seed_makespan=self.seed_makespan / ticks,
        )

    @property
    def gap(self) -> float:
        """Relative excess of the makespan over the bound."""
        return max(0.0, self.makespan / self.bound - 1)

    @property
    def proven(self) -> bool:
        """Return true if no lists can be shorter."""
        return self.gap <= EPSILON


def solve(pipeline: Pipeline, effort: Effort | None = None) -> Solution:
    """Search. Raises InfeasibleError under a limit below one micro-batch, InputError where OR-tools is missing."""
    if pipeline.memory_limit + EPSILON < PASS_MEMORY:
        reason = f"a micro-batch on a rank takes {PASS_MEMORY:g}"
        raise InfeasibleError(
            f"No lists keep to the memory limit {pipeline.memory_limit:g}.",
            [reason],
            f"--memory-limit {PASS_MEMORY:g}",
        )
    return solve_task(SolverInput.of(pipeline), effort)


def makespan_lower_bound(task: SolverInput) -> float:
    """Return a makespan that no lists of a task undercut, from the closed-form bounds alone."""
    ticks = whole_times(task.pipeline.times)
    in_ticks = replace(task, pipeline=replace(task.pipeline, times=ticks.times))
    return lower_bound(in_ticks).makespan / ticks.in_unit


def solve_task(
    task: SolverInput, effort: Effort | None = None, report: ReportSolverProgress | None = None
) -> Solution:
    """Search, and tell every now and then how far it is.

    Raises InfeasibleError where no lists to begin with keep to the limit, InputError where OR-tools is missing.
    """
    effort = effort or Effort()
    missing = missing_solver() if effort.method == "exact" else None
    if missing:
        raise InputError(missing)
    ticks = whole_times(task.pipeline.times)
    in_ticks = replace(task, pipeline=replace(task.pipeline, times=ticks.times))
    search = _Search(in_ticks, effort, lambda now: report(now.in_unit(ticks.in_unit)) if report else None)
    search.run()
    found = Solution(
        lists=numbered(search.best.orders, task.pipeline.stages),
        makespan=search.best.figures[0],
        bound=search.bound.makespan,
        bound_reason=search.bound.reason,
        found_by=search.found_by,
        best_seed=search.start.name,
        seed_makespan=search.seed_makespan,
        steps=search.steps,
        interrupted=search.interrupted,
    )
    return found.in_unit(float(ticks.in_unit))


class _Search:
    """The best lists so far and the best bound; all times in ticks."""

    def __init__(self, task: SolverInput, effort: Effort, report: ReportSolverProgress) -> None:
        pipeline = task.pipeline
        assert len(set(pipeline.placement[: pipeline.ranks])) == pipeline.ranks, (
            "a rank waits for a second stage"
        )
        self.task, self.effort, self.report = task, effort, report
        self.begun = monotonic()
        self.bound: Bound = lower_bound(task)
        self.boards = sorted(
            ((seed, PrecedenceGraph(task, seed.orders)) for seed in seeds(task)), key=lambda of: of[1].figures
        )
        if not self.boards:
            raise InfeasibleError("No lists to begin with keep to the memory limit.", [], "more memory")
        self.start, board = self.boards[0]
        self.best, self.found_by = Found(board.figures, board.orders), self.start.name
        self.seed_makespan = board.figures[0]
        self.steps, self.interrupted = 0, False

    @property
    def is_proven(self) -> bool:
        return self.best.figures[0] <= self.bound.makespan

    def run(self) -> None:
        """Run the walks, then constraint programming where requested."""
        effort = self.effort
        small = 3 * self.task.pipeline.stages * self.task.pipeline.micro_batches <= EXACT_PASSES
        exact = effort.method == "exact" or (effort.method == "auto" and small and missing_solver() is None)
        seconds = min(FOR_WALKS * effort.seconds, MOST_FOR_WALKS) if exact else effort.seconds
        until = self.begun + seconds
        try:
            self._report()
            self._walk(lambda: monotonic() > until)
            if exact and (effort.method == "exact" or not self.is_proven):
                self._prove()
        except KeyboardInterrupt:
            self.interrupted = True

    def _walk(self, is_over: Callable[[], bool]) -> None:
        walks, steps = [TabuSearch(board, self.effort.seed) for _, board in self.boards], ROUND
        while not self.is_proven and not is_over() and not self._spent():
            for walk in walks:
                for _ in range(steps):
                    if self.is_proven or is_over() or self._spent():
                        break
                    walk.step()
                    self.steps += 1
                    self._take(walk.best, LOCAL)
                self._report()
            walks = sorted(walks, key=lambda walk: walk.best.figures)[: ceil(len(walks) / 2)]

    def _report(self) -> None:
        part = (monotonic() - self.begun) / self.effort.seconds
        self.report(SolverProgress(self.best.figures[0], self.bound.makespan, min(1.0, part)))

    def _spent(self) -> bool:
        return self.effort.steps is not None and self.steps >= self.effort.steps

    def _prove(self) -> None:
        seconds = max(0.0, self.begun + self.effort.seconds - monotonic())
        proof = prove(self.task, self.best, self.bound.makespan, seconds, self.effort.seed)
        self._take(proof.found, EXACT)
        self.interrupted = proof.interrupted
        if proof.bound > self.bound.makespan:
            self.bound = Bound(proof.bound, EXACT)

    def _take(self, found: Found, by: str) -> None:
        if found.figures < self.best.figures:
            self.best, self.found_by = found, by
