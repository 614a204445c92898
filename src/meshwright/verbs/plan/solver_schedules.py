"""Improve the best plans' schedules: run the solver at each plan's own times, within its memory.

The best plans that a solver sees differently are tried (``TRIED``), the best first, where the bound of their lists
leaves them a chance to be the best of all. Each has an equal part of the seconds that are left. What is found is
predicted as any plan with lists of its own is, and taken if the step is shorter and fits; so no answer is worse than
without. With a number of steps, and time enough for them, equal seeds give equal lists; a time ends a search after more
or fewer steps. An interrupt ends it with what has been found till then.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import isfinite
from time import monotonic
from typing import Any

import numpy as np

from meshwright.cost.closed_form.step_parts import pipeline_lengths
from meshwright.cost.schedule_solver_task import CustomSchedulePlan, solver_task, unsupported_by_solver
from meshwright.errors import InfeasibleError, Problem
from meshwright.plans.arrays.short_plans import short_plan
from meshwright.plans.files.custom_schedule_file import with_schedule
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import Resolved
from meshwright.plans.setting import Setting
from meshwright.schedules.solve import (
    Effort,
    Method,
    Solution,
    SolverProgress,
    makespan_lower_bound,
    solve_task,
)
from meshwright.search.algorithms.exhaustive import MATTERS, RankedPlans, rank
from meshwright.search.choice_reasons import relative_step_time
from meshwright.search.reasons import Reason
from meshwright.search.stage_rebalancing import RebalancedPlan
from meshwright.stack.stack import OWN_STACK, Stack
from meshwright.units import format_seconds
from meshwright.verbs.plan.proposal import Proposal, proposed
from meshwright.verbs.plan.search_space import Progress
from meshwright.verbs.predict.predict_plan import predicted
from meshwright.verbs.schedule.solve_chain import LONGEST, MAX_PASSES, MAX_SEED

TRIED = 3
LEAST_S = 1e-3
"""What a plan gets of a time that is over: its first lists, judged."""
NOTHING = 1e-9
"""A step that is shorter by less is as long."""
SEEN = (*MATTERS, "micro_batch", "virtual_stages")
"""Choices that change a solver's input, besides a schedule's placement of stages."""
ORIGIN = {
    "step_time_s": "predicted: closed forms that play the lists of a plan, as `predict` does",
    "pipeline_s": "played; from the first start to the last end, or the longest span of a rank where steps overlap",
    "lower_bound_s": "computed or proven (bound_reason), of the pipeline at the plan's own times and memory",
    "gap": "pipeline_s / lower_bound_s - 1",
}
"""What the numbers of a ``SolverAttempt`` are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverOptions:
    """Limits of the schedule solver: seconds, and ``steps`` of local search per plan if given."""

    seconds: float
    steps: int | None = None
    seed: int = 0

    def effort(self, seconds: float) -> Effort:
        """Return the effort for one plan; with ``steps``, local search alone."""
        method: Method = "auto" if self.steps is None else "local"
        return Effort(seconds=seconds, steps=self.steps, seed=self.seed, method=method)


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverAttempt:
    """A plan given to the solver: its step before and after, the solution, or why it was skipped."""

    plan: ShortPlan
    before_s: float
    after_s: float
    why_not: str | None = None
    solution: Solution | None = None
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        choice, of = self.plan.pipeline.choice, self.solution
        data = {
            "layout": self.plan.layout.to_data(),
            "pipeline": self.plan.pipeline.to_data(),
            "recompute": self.plan.to_data()["recompute"],
            "schedule": str(choice),
            "step_time_before_s": self.before_s,
            "step_time_s": self.after_s,
            "left_because": self.why_not,
        }
        if of is None:
            return data
        return data | {
            "pipeline_s": of.makespan,
            "lower_bound_s": of.bound,
            "bound_reason": of.bound_reason,
            "gap": of.gap,
            "proven": of.proven,
            "found_by": of.found_by,
            "search_steps": of.steps,
            "search_time_s": self.seconds,
            "interrupted": of.interrupted,
        }


@dataclass(slots=True)
class Solved:
    """The attempts of the solver; ``proposals`` has the improved plans by row of the search result."""

    solving: SolverOptions
    looked_at: list[SolverAttempt] = field(default_factory=list)
    proposals: dict[int, Proposal] = field(default_factory=dict)
    seconds: float = 0.0
    interrupted: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        return {
            "seconds_allowed": self.solving.seconds,
            "steps_allowed": self.solving.steps,
            "seed": self.solving.seed,
            "search_time_s": self.seconds,
            "interrupted": self.interrupted,
            "plans": [one.to_json() for one in self.looked_at],
            "origin": ORIGIN,
        }


def solving_problems(solving: SolverOptions, keep: Sequence[str], stack: Stack | None) -> Iterator[Problem]:
    """Yield the problems of a solver request."""
    if not (isfinite(solving.seconds) and 0 < solving.seconds <= LONGEST):
        rule = f"must be above 0 and at most {LONGEST:g} s"
        yield Problem("solve", solving.seconds, rule, "--solve 60")
    if solving.steps is not None and solving.steps < 1:
        yield Problem("solve-steps", solving.steps, "must be at least 1", "--solve-steps 10000")
    if not 0 <= solving.seed <= MAX_SEED:
        yield Problem("seed", solving.seed, f"must be from 0 to {MAX_SEED}", "--seed 0")
    if stack is not None and not stack.written_lists:
        rule = f"{stack.id} runs schedules by name, not lists of one's own"
        yield Problem("solve", solving.seconds, rule, f"--stack {OWN_STACK}, or without --solve")
    for text in keep:
        name = text.partition("=")[0].strip()
        if name in ("schedule", "unit", "in_flight"):
            rule = f"and --keep {text}: lists that are searched have another order"
            yield Problem("solve", solving.seconds, rule, f"without --keep {text}, or without --solve")


def solved(
    staged: RebalancedPlan,
    header: ShortPlan,
    setting: Setting,
    solving: SolverOptions,
    memory_limit: float | None = None,
    progress: Progress | None = None,
) -> Solved:
    """Better lists for the best plans of what was found, where there are any; ``memory_limit`` as a plan states it."""
    result, begun = Solved(solving), monotonic()
    found = staged.found
    best = float(found.step_s[found.ranking].min())
    rows = [
        (row, unsupported_by_solver(short_plan(found.plans, row, header))) for row in _seen_differently(found)
    ]
    seen = [row for row, why_not in rows if why_not is None][:TRIED]
    result.looked_at += [_left(found, row, header, why_not) for row, why_not in rows[:1] if why_not]
    try:
        attempts = [_Attempt(one, setting, memory_limit) for one in proposed(staged, seen, header, setting)]
        hopeful = [attempt for attempt in attempts if attempt.why_not(best) is None]
        for row, attempt in zip(seen, attempts, strict=True):
            done = hopeful.index(attempt) if attempt in hopeful else 0
            left = solving.seconds - (monotonic() - begun)
            effort = solving.effort(max(LEAST_S, left / max(1, len(hopeful) - done)))
            looked_at, better = attempt.solved(best, effort, partial(_report, progress, done, len(hopeful)))
            result.looked_at.append(looked_at)
            if better is not None:
                result.proposals[row], best = better, min(best, looked_at.after_s)
            if looked_at.solution is not None and looked_at.solution.interrupted:
                result.interrupted = True
                break
    except KeyboardInterrupt:
        result.interrupted = True
    result.seconds = monotonic() - begun
    return result


def _seen_differently(found: RankedPlans) -> list[int]:
    """Rows of the best plans that a solver sees differently; those without a pipeline are none."""
    plans, ranking = found.plans, found.ranking[found.plans.pp[found.ranking] > 1]
    placements = [choice.kind.placement(2, choice.kind.fixed_chunks or 2) for choice in plans.schedules]
    laid = np.array([placements.index(of) for of in placements], dtype=np.int64)[plans.schedule[ranking]]
    columns = np.stack([*(getattr(plans, name)[ranking] for name in SEEN), laid], 1)
    _, first = np.unique(columns, axis=0, return_index=True)
    return [int(ranking[i]) for i in np.sort(first)]


def _left(found: RankedPlans, row: int, header: ShortPlan, why_not: str) -> SolverAttempt:
    step_s = float(found.step_s[row])
    plan = short_plan(found.plans, row, header)
    return SolverAttempt(plan=plan, before_s=step_s, after_s=step_s, why_not=why_not)


def _report(progress: Progress | None, number: int, count: int, now: SolverProgress) -> None:
    """Report the best makespan found for one plan's lists."""
    if progress is not None:
        shortest, bound = map(format_seconds, (now.makespan, now.bound))
        what = f"lists of plan {number + 1} of {count}: {shortest}, none below {bound}"
        progress(what, (number + now.part) / count)


class _Attempt:
    """One plan and its lists."""

    def __init__(self, before: Proposal, setting: Setting, memory_limit: float | None) -> None:
        self.before, self.setting = before, setting
        long = before.long or expand(before.plan, setting.model.architecture)
        self.listed = CustomSchedulePlan.of(before.plan, long, setting, memory_limit)
        self.task = solver_task(self.listed, setting)

    def solved(
        self, best: float, effort: Effort, progress: Callable[[SolverProgress], None]
    ) -> tuple[SolverAttempt, Proposal | None]:
        """Solve; return the attempt, and the plan with better lists if there are any."""
        step_s = self.before.report.step_time_s
        left = SolverAttempt(plan=self.before.plan, before_s=step_s, after_s=step_s)
        why_not = self.why_not(best)
        if why_not:
            return replace(left, why_not=why_not), None
        begun = monotonic()
        try:
            solution = solve_task(self.task, effort, progress)
        except InfeasibleError as error:
            return replace(left, why_not=error.message), None
        of = replace(left, solution=solution, seconds=monotonic() - begun)
        after = self._with_lists(solution)
        if after.report.fits and after.report.step_time_s < step_s * (1 - NOTHING):
            return replace(of, after_s=after.report.step_time_s), after
        return of, None

    @cached_property
    def _least_s(self) -> float:
        """Return a lower bound of its step in seconds over all lists, with all else unchanged."""
        (length,) = pipeline_lengths([self.listed.group(self.setting)])
        return self.before.report.step_time_s - float(length.seconds[0]) + makespan_lower_bound(self.task)

    def why_not(self, best: float) -> str | None:
        """Why there is nothing to look for: too much work, or a bound that leaves no chance."""
        pipeline, step_s = self.task.pipeline, self.before.report.step_time_s
        passes = 3 * pipeline.stages * pipeline.micro_batches
        if passes > MAX_PASSES:
            return f"{passes:,} passes > {MAX_PASSES:,}, too many to search"
        least = self._least_s
        if least >= step_s * (1 - NOTHING):
            return "no lists are shorter than its own"
        return f"its step would still take {format_seconds(least)} at least" if least >= best else None

    def _with_lists(self, solution: Solution) -> Proposal:
        """Return the plan with the solution's lists, predicted."""
        before, schedule = self.before, self.listed.schedule(solution.lists)
        short = with_schedule(before.plan, schedule)
        long = before.long and with_schedule(before.long, schedule)
        full = long or expand(short, self.setting.model.architecture)
        report = predicted(Resolved(full, None if long else short, self.setting))
        choice = before.plan.pipeline.choice
        step_s = before.report.step_time_s
        text = f"searched for its own times; {choice}: {relative_step_time(step_s, report.step_time_s)}"
        own = Reason("schedule", str(short.pipeline.choice), text)
        others = [reason for reason in before.reasons if reason.field != "schedule"]
        return replace(before, plan=short, long=long, report=report, reasons=(*others, own))


def ranked(proposals: Sequence[Proposal], top: int) -> tuple[Proposal, ...]:
    """Return the best proposals that differ in something that matters."""
    times = np.array([one.report.step_time_s for one in proposals])
    held = np.array([one.report.memory_bytes["total"] for one in proposals])
    best: dict[tuple[object, ...], Proposal] = {}
    for index in rank(times, held):
        plan = proposals[index].plan
        key = tuple(getattr(plan.layout, name, plan.recompute) for name in MATTERS)
        best.setdefault(key, proposals[index])
    return tuple(best.values())[:top]
