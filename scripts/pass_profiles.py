"""Profiled passes: the times of a stage's F, I and W, in addition to step times.

Errors of the three cancel in a step's time, so a fit to steps alone can have all of them wrong. Runs of Zero Bubble
come with the times that its authors' scheduler saw (arXiv 2401.10241), in the notes of the table of runs:
``profiled TF/TB/TW/Tcomm ms 18.5/18.1/9.3/0.6``, where their TB is our I. They are times of a stage in the middle.
"""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from meshwright.calibration.observations import Floats, Observation
from meshwright.calibration.usable_runs import usable_runs
from meshwright.cost.closed_form.evaluate_plans import pipeline_groups
from meshwright.cost.constant_values import with_values
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.setting import Setting
from meshwright.schedules.generators import SCHEDULES
from meshwright.validation.read_run_table import Run

PROFILED = re.compile(r"profiled TF/TB/TW/Tcomm ms ([\d.]+)/([\d.]+)/([\d.]+)/")


@dataclass(frozen=True)
class PassProfile:
    """Seconds of F, I and W, (n, 3), measured on a middle stage of n plans with split backward passes."""

    setting: Setting
    plans: PlanArrays
    measured_s: Floats
    sources: tuple[str, ...]

    def log_errors(self, values: Mapping[str, float]) -> Floats:
        """Return log(predicted/measured) of all passes with the constants ``values``: (3·n,)."""
        predicted = middle_passes(self.plans, with_values(self.setting, values))
        return np.log(predicted / self.measured_s).ravel()


def middle_passes(plans: PlanArrays, setting: Setting) -> Floats:
    """Return seconds of F, I and W of the middle stage: (n, 3). All schedules must split the backward pass."""
    found = np.empty((len(plans), 3))
    for rows, group in pipeline_groups(plans, setting):
        middle, weight = len(group.stages) // 2, group.weight_s
        assert weight is not None
        passes = (group.forward_s, group.input_s, weight)
        found[rows] = np.stack([seconds[:, middle] for seconds in passes], 1)
    return found


def profiles_of(runs: Sequence[Run], notes: Mapping[str, str]) -> list[PassProfile]:
    """Return the profiles in the notes of runs (by ``run_id``), each set of times once."""
    timed: dict[tuple[str, ...], Run] = {}
    for run in runs:
        match = PROFILED.search(notes.get(run.run_id, ""))
        named = run.chosen.schedule
        if match and named and SCHEDULES[named.name].split:
            timed.setdefault(match.groups(), run)
    return [
        _profile(observation, tuple(float(ms) / 1e3 for ms in times))
        for times, run in timed.items()
        for observation in usable_runs([run]).observations
    ]


def _profile(observation: Observation, seconds: tuple[float, ...]) -> PassProfile:
    sources = tuple(chain.from_iterable((source,) * 3 for source in observation.sources))
    return PassProfile(observation.setting, observation.plans, np.array([seconds]), sources)


def read_notes(path: str) -> dict[str, str]:
    """Return the ``notes`` column of a table of runs by ``run_id``."""
    with open(path, encoding="utf-8-sig", newline="") as lines:
        return {row["run_id"]: row.get("notes") or "" for row in csv.DictReader(lines)}
