"""A plan's own stage times for ``schedule``: write them to a file, or pass them to the solver.

They are those that a solver is given for the plan (``cost/schedule_solver_task.py``), in seconds. ``schedule auto
--from`` takes what stages hold and the room of every rank too; a file of times has one limit instead, which is safe
for all ranks.
"""

from collections.abc import Sequence
from time import monotonic

import numpy as np

from meshwright.cost.schedule_solver_task import CustomSchedulePlan, solver_task, unsupported_by_solver
from meshwright.errors import InputError, Problem
from meshwright.plans.files.meshwright_file import write_file
from meshwright.plans.files.yaml_output import commented
from meshwright.plans.resolve import Resolved
from meshwright.schedules.custom.inferred_shape import shape_of
from meshwright.schedules.integer_times import three, whole_times
from meshwright.schedules.pipeline import PASS_MEMORY, looped_placement
from meshwright.schedules.solve import SolverInput, solve_task
from meshwright.verbs.predict.predict_plan import check_playable, closed_form_plan
from meshwright.verbs.schedule.named_schedules import scheduled_as
from meshwright.verbs.schedule.schedule_request import ScheduleLists, ScheduleRequest, limit_problems
from meshwright.verbs.schedule.solve_chain import AUTO, ScheduleSearchOptions, Solved, search_problems

OF_THE_PLAN = ("stages", "micro_batches", "chunks", "times", "stage_times", "unit")


def solved_for(plan: Resolved, request: ScheduleRequest, search: ScheduleSearchOptions) -> Solved:
    """Search lists for a plan. Raises InputError with all problems, InfeasibleError where none fit."""
    problems = [*limit_problems(request), *search_problems(search)]
    given = {name: getattr(request, name) for name in OF_THE_PLAN} | {"placement": search.placement}
    problems += [
        Problem(name.replace("_", "-"), value, "is the plan's own with --from", "leave it out")
        for name, value in given.items()
        if value is not None
    ]
    ranks = plan.long.pipeline.ranks
    limit = request.memory_limit
    task = _task(plan, "from", problems, None if limit is None else limit / PASS_MEMORY / ranks)
    begun = monotonic()
    found = solve_task(task, search.effort)
    took = monotonic() - begun
    made = ScheduleLists(AUTO, found.lists, shape_of(found.lists), whole_times(task.pipeline.times), limit)
    return Solved(scheduled_as(made), found, took, task.goal)


def stage_times_text(plan: Resolved, file: str) -> str:
    """Format the times as ``--stage-times`` reads them from ``file``.

    Raise InputError where there is nothing to order.
    """
    pipeline = _task(plan, "stage-times", []).pipeline
    times, limit = pipeline.times, pipeline.knobs.memory_limit
    data = {
        **{name: _to_nanoseconds(of) for name, of in zip("FIW", three(times), strict=True)},
        "message": round(times.message, 9),
        "kept": round(times.kept, 6),
    }
    words = [f"--stages {pipeline.ranks} --micro-batches {pipeline.micro_batches}"]
    if pipeline.chunks > 1:
        looped = pipeline.placement == looped_placement(pipeline.ranks, pipeline.chunks)
        words.append(f"--chunks {pipeline.chunks} --placement {'loop' if looped else 'v'}")
    if limit is not None:
        words.append(f"--memory-limit {np.floor(1000 * limit) / 1000:g}")
    command = " ".join(["meshwright schedule auto", *words, f"--stage-times {file}"])
    above = ("F, I and W of every stage and a message, in seconds", command)
    return write_file(commented(data, frozenset(data), {}), above)


def _to_nanoseconds(seconds: Sequence[float]) -> list[float]:
    return [round(of_stage, 9) for of_stage in seconds]


def _task(
    plan: Resolved, field: str, problems: list[Problem], memory_limit: float | None = None
) -> SolverInput:
    """Return a plan as the solver's input. Raise InputError, with its problems too."""
    short = closed_form_plan(plan)
    why_not = "has layers that no short form has" if short is None else unsupported_by_solver(short)
    if why_not:
        hint = "a plan with pp > 1, one way through the model and its vocabulary at the ends"
        problems.append(Problem(field, str(plan.long.choice), why_not, hint))
    if problems or short is None:
        raise InputError(problems)
    check_playable(plan)
    return solver_task(CustomSchedulePlan.of(short, plan.long, plan.setting, memory_limit), plan.setting)
