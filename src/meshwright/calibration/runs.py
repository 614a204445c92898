"""Observations from a table of measured runs: those that have a step time and can be priced."""

from collections.abc import Iterator, Sequence

import numpy as np

from meshwright.calibration.observations import Observation
from meshwright.errors import InputError
from meshwright.validation.plans import faults, plan_arrays, run_plan
from meshwright.validation.rows import Run
from meshwright.validation.settings import setting_of


def observations_of(runs: Sequence[Run]) -> list[Observation]:
    """Group the runs by setting; runs without a time, or that can not be priced, are left out."""
    same: dict[int, list[Run]] = {}
    for run in runs:
        if run.step_time_s and run.outcome == "ok":
            same.setdefault(id(run.given), []).append(run)
    found = (_observations(members) for members in same.values())
    return [observation for observations in found for observation in observations]


def _observations(runs: list[Run]) -> Iterator[Observation]:
    try:
        setting = setting_of(runs[0].given)
    except InputError:
        return
    planned = [(run, run_plan(run.chosen, setting.cluster.devices)) for run in runs]
    legal = [(run, plan) for run, plan in planned if not any(True for _ in faults(plan, setting))]
    for numbers, plans in plan_arrays([plan for _, plan in legal], setting):
        members = [legal[number][0] for number in numbers]
        measured = np.array([run.step_time_s for run in members], dtype=np.float64)
        yield Observation(setting, plans, measured, tuple(run.source for run in members))
