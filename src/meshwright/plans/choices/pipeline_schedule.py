"""The pipeline schedule with its knobs. Base plans enumerate it with their stages."""

from operator import attrgetter

from meshwright.plans.choices.plan_choice import Choice
from meshwright.plans.forms.short import Schedule, schedule_spelling
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.generators import SCHEDULES


def _schedule(choice: ScheduleChoice) -> object:
    return schedule_spelling(Schedule.of(choice))


schedule = Choice(
    path="pipeline.schedule",
    names=tuple(SCHEDULES),
    read=attrgetter("pipeline.choice"),
    write=_schedule,
)
