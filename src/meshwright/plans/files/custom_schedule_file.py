"""Read the action lists of a plan whose schedule is a CSV file; the plan keeps them.

From then on the plan is a value like any other: nothing reads the file again. What is printed or saved of it names the
file with the SHA-256 of its lines; a plan that states one means these lines and no others.
"""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

from meshwright.errors import InputError, Problem
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import Schedule, ShortPlan
from meshwright.schedules.custom.csv_file import lines_of_file
from meshwright.schedules.custom.custom_schedule import CustomSchedule

P = TypeVar("P", bound=ShortPlan | LongPlan)
FIELD = "pipeline.schedule"


def with_custom_lists_read(plan: ShortPlan | LongPlan, folder: Path) -> ShortPlan | LongPlan:
    """Return the plan with the lists of its file, relative to ``folder`` if it is there.

    Raises InputError where the file can not be read, or has other lines than the plan says.
    """
    schedule = plan.pipeline.schedule
    if not isinstance(schedule, Schedule) or schedule.file is None or schedule.lists is not None:
        return plan
    return with_schedule(plan, _read(schedule, schedule.file, folder))


def renamed(plan: P, file: str) -> P:
    """Return the plan with another name for the file of its lists, if it has one."""
    schedule = plan.pipeline.schedule
    if not isinstance(schedule, Schedule) or schedule.file is None:
        return plan
    return with_schedule(plan, schedule.model_copy(update={"file": file}))


def filed(plan: P, file: str) -> P:
    """Return the plan with its lists, if any, moved to a file of this name."""
    schedule = plan.pipeline.schedule
    if not isinstance(schedule, Schedule) or schedule.lists is None:
        return plan
    digest = CustomSchedule(schedule.lists).sha256
    return with_schedule(plan, schedule.model_copy(update={"file": file, "sha256": digest}))


def with_schedule(plan: P, schedule: Schedule) -> P:
    """Return the plan with another schedule, for as many stages on the same ranks."""
    pipeline = plan.pipeline.model_copy(update={"schedule": schedule})
    return cast(P, plan.model_copy(update={"pipeline": pipeline}))


def _read(schedule: Schedule, file: str, folder: Path) -> Schedule:
    path = folder / file
    named = str(path) if path.exists() else file
    try:
        written = CustomSchedule(lines_of_file(named), named)
    except InputError as error:
        raise InputError(replace(p, field=f"{FIELD}.file") for p in error.problems) from None
    if schedule.sha256 not in (None, written.sha256):
        rule = f"{named} has {written.sha256}: it was changed since, or is another file"
        hint = "take sha256 out, or give the file that it is of"
        raise InputError(Problem(f"{FIELD}.sha256", schedule.sha256, rule, hint))
    return schedule.model_copy(update={"file": named, "sha256": written.sha256, "lists": written.lines})
