"""Measured runs as the cost model sees them one by one: times of stages, and what is outside of the pipeline."""

from dataclasses import dataclass
from functools import cached_property

from meshwright.cost.closed_form.evaluate_plans import pipeline_groups, seconds_by_part
from meshwright.cost.closed_form.plan_group import PlanGroup
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.setting import Setting
from meshwright.schedules.stage_times import StageTimes
from meshwright.units import GIB
from meshwright.validation.predict_runs import predict_runs
from meshwright.validation.read_run_table import Run, read_runs
from meshwright.validation.run_plan import plan_arrays, run_plan
from meshwright.validation.run_setting import setting_of


@dataclass(frozen=True)
class Measured:
    """A run with the step time and the peak of memory that ``validate`` predicts for it."""

    run: Run
    step_s: float
    memory_gib: float

    @property
    def measured_s(self) -> float:
        """Seconds of a step; NaN where the run was out of memory."""
        return float("nan") if self.run.step_time_s is None else self.run.step_time_s

    @property
    def schedule(self) -> str:
        """The schedule's name."""
        assert self.run.chosen.schedule is not None
        return self.run.chosen.schedule.name

    @cached_property
    def group(self) -> PlanGroup:
        """The arrays of this plan alone."""
        plans, setting = self._priced
        ((_, group),) = pipeline_groups(plans, setting)
        return group

    @cached_property
    def _priced(self) -> tuple[PlanArrays, Setting]:
        setting = setting_of(self.run.given)
        ((_, plans),) = plan_arrays([run_plan(self.run.chosen, setting.cluster.devices)], setting)
        return plans, setting

    @cached_property
    def outside_s(self) -> float:
        """Seconds of a step that are no pipeline: optimizer, gradient norm, tied tables."""
        parts = seconds_by_part(*self._priced)
        return float(parts["optimizer"][0] + parts["dp"][0])

    @property
    def layers(self) -> list[int]:
        """Layers of every stage."""
        blocks = self.group.setting.model.layer_blocks
        return [sum(block in blocks for block in stage) for stage in self.group.stages]

    @property
    def stage_times(self) -> StageTimes:
        """Seconds of all passes of stages; a whole B stands under ``input``."""
        group = self.group
        weight = group.weight_s[0].tolist() if group.weight_s is not None else [0.0] * len(self.layers)
        passes = (group.forward_s[0].tolist(), group.input_s[0].tolist(), weight)
        return StageTimes(*map(tuple, passes), float(group.message_s[0]))


def measured_runs(path: str, source: str) -> list[Measured]:
    """The runs of the source whose name begins so, predicted. Nothing may be skipped."""
    runs = [run for run in read_runs(path) if isinstance(run, Run) and run.source.startswith(source)]
    found = predict_runs(runs, intervals=False)
    assert found.made.all(), found.reasons
    return [
        Measured(run, float(found.step_s[i]), float(found.memory_bytes[i]) / GIB)
        for i, run in enumerate(runs)
    ]
