"""``schedule auto``: search the shortest lists for a pipeline, its times and its memory limit.

Without a limit that is 1F1B's memory. Several stages of a rank lie in a V if nothing else is said. Figures, lists and
pictures are those of every other schedule; in addition: how the lists were found, and their lower bound.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from time import monotonic
from typing import Any

from meshwright.errors import InputError, Problem, attempted, nearest
from meshwright.schedules.custom.inferred_shape import shape_of
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.pipeline import Knobs, Pipeline, looped_placement, v_placement
from meshwright.schedules.solve import METHODS, Effort, Goal, Solution, solve
from meshwright.schedules.solve.constraint_programming import missing_solver
from meshwright.verbs.schedule.named_schedules import Scheduled, scheduled_as
from meshwright.verbs.schedule.pass_times import GivenTimes, for_pipeline, times_given
from meshwright.verbs.schedule.schedule_request import (
    MAX_CHUNKS,
    ScheduleLists,
    ScheduleRequest,
    limit_problems,
    number_problems,
)

AUTO = "auto"
PLACEMENTS = {"v": v_placement, "loop": looped_placement}
MAX_PASSES = 300_000
"""F, I and W of all stages and micro-batches; a step of local search takes about a microsecond for each."""
LONGEST = 86_400.0
MAX_SEED = 2**31 - 1
ORIGIN = {
    "goal": "which of makespan and latency was to be short; seed_makespan and lower_bound are of that",
    "lower_bound": "computed or proven (bound_reason); no lists within the memory limit have a shorter makespan",
    "gap": "makespan / lower_bound - 1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSearchOptions:
    """Options of a schedule search only; None if not given."""

    placement: str | None = None
    time_budget: float | None = None
    method: str | None = None
    seed: int | None = None

    @property
    def effort(self) -> Effort:
        """The same as the solver has it."""
        usual = Effort()
        return Effort(
            seconds=usual.seconds if self.time_budget is None else self.time_budget,
            seed=self.seed or 0,
            method=next((method for method in METHODS if method == self.method), usual.method),
        )


@dataclass(frozen=True, slots=True)
class Solved:
    """Lists that were searched for, played like any others."""

    played: Scheduled
    solution: Solution
    search_time_s: float
    goal: Goal = "makespan"

    def to_json(self) -> dict[str, Any]:
        """Return the public form of a schedule and its search."""
        of, in_all = self.solution, self.played.to_json()
        return in_all | {
            "goal": self.goal,
            "lower_bound": of.bound,
            "bound_reason": of.bound_reason,
            "gap": of.gap,
            "proven": of.proven,
            "found_by": of.found_by,
            "best_seed": of.best_seed,
            "seed_makespan": of.seed_makespan,
            "search_steps": of.steps,
            "search_time_s": self.search_time_s,
            "interrupted": of.interrupted,
            "origin": in_all["origin"] | ORIGIN,
        }

    def csv(self) -> str:
        """Write the lists as CSV, one row for each rank."""
        return self.played.csv()

    def svg(self) -> str:
        """Draw the timeline."""
        return self.played.svg()


def solved(request: ScheduleRequest, search: ScheduleSearchOptions) -> Solved:
    """Search. Raises InputError with all problems, InfeasibleError where no lists keep to the limit."""
    problems = [*number_problems(request, required=True), *limit_problems(request), *_problems(request)]
    problems += search_problems(search)
    given: GivenTimes | None = attempted(lambda: times_given(request.times, request.stage_times), problems)
    if problems or given is None:
        raise InputError(problems)
    ranks, micro_batches, chunks = request.stages or 0, request.micro_batches or 0, request.chunks or 1
    ticks = for_pipeline(given, ranks, StageChains(ranks * chunks))
    pipeline = Pipeline(
        ranks=ranks,
        micro_batches=micro_batches,
        placement=PLACEMENTS[search.placement or "v"](ranks, chunks),
        times=ticks.times,
        knobs=Knobs(memory_limit=request.memory_limit),
    )
    begun = monotonic()
    found = solve(pipeline, search.effort)
    took = monotonic() - begun
    made = ScheduleLists(AUTO, found.lists, shape_of(found.lists), ticks, pipeline.memory_limit)
    return Solved(scheduled_as(made), found.in_unit(ticks.in_unit), took)


def _problems(request: ScheduleRequest) -> Iterator[Problem]:
    passes = 3 * (request.stages or 0) * (request.micro_batches or 0) * (request.chunks or 1)
    if passes > MAX_PASSES and (request.chunks or 1) <= MAX_CHUNKS:
        rule = f"3·stages·chunks·micro-batches = {passes:,} passes > {MAX_PASSES:,}, too many to search"
        yield Problem(
            "micro-batches", request.micro_batches, rule, f"--micro-batches {4 * (request.stages or 1)}"
        )
    if request.unit is not None:
        yield Problem("unit", request.unit, f"{AUTO} has no unit of micro-batches", "leave it out")


def search_problems(search: ScheduleSearchOptions) -> Iterator[Problem]:
    """Options of a search that it can not have."""
    if search.placement not in (None, *PLACEMENTS):
        hint = nearest(str(search.placement), PLACEMENTS)
        yield Problem("placement", search.placement, "is no way to lay stages", hint)
    if search.method not in (None, *METHODS):
        yield Problem("method", search.method, "is no way to search", nearest(str(search.method), METHODS))
    missing = missing_solver() if search.method == "exact" else None
    if missing:
        yield missing
    budget, seed = search.time_budget, search.seed
    if budget is not None and not (isfinite(budget) and 0 < budget <= LONGEST):
        yield Problem("time-budget", budget, f"must be above 0 and at most {LONGEST:g} s", "--time-budget 60")
    if seed is not None and not 0 <= seed <= MAX_SEED:
        yield Problem("seed", seed, f"must be from 0 to {MAX_SEED}", "--seed 0")
