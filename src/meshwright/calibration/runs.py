"""Observations from a table of measured runs: those that have a step time and can be priced."""

from collections.abc import Sequence

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
    found = (_observation(members) for members in same.values())
    return [observation for observation in found if observation is not None]


def _observation(runs: list[Run]) -> Observation | None:
    try:
        setting = setting_of(runs[0].given)
    except InputError:
        return None
    planned = [(run, run_plan(run.chosen, setting.cluster.devices)) for run in runs]
    legal = [(run, plan) for run, plan in planned if not any(True for _ in faults(plan, setting))]
    if not legal:
        return None
    measured = np.array([run.step_time_s for run, _ in legal], dtype=np.float64)
    plans = plan_arrays([plan for _, plan in legal])
    return Observation(setting, plans, measured, tuple(run.source for run, _ in legal))
