"""The pipeline ranks, stages per rank and schedule that all plans of an array share."""

from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.schedules.choice import ScheduleChoice


class SharedPipeline:
    """Plans with equal pipeline ranks, stages per rank and schedule."""

    plans: PlanArrays

    @property
    def ranks(self) -> int:
        """Pipeline ranks P."""
        return int(self.plans.pp[0])

    @property
    def chunks(self) -> int:
        """Stages per rank V."""
        return int(self.plans.virtual_stages[0])

    @property
    def schedule(self) -> ScheduleChoice:
        """The schedule choice."""
        return self.plans.schedules[int(self.plans.schedule[0])]
