"""Select the runs of a table that have a step time and can be priced, with reasons for the others."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from meshwright.calibration.observations import Observation
from meshwright.cluster.cluster import Cluster
from meshwright.errors import InputError
from meshwright.validation.read_run_table import Run, Skipped
from meshwright.validation.run_model import is_absent
from meshwright.validation.run_plan import RunPlan, faults, plan_arrays, run_plan
from meshwright.validation.run_setting import setting_of


@dataclass(frozen=True, slots=True)
class UsableRuns:
    """The usable part of a table, and every other run with the reason, in the order of the table.

    ``remarks`` name models of which only the columns are known, and words that were guessed.
    """

    observations: tuple[Observation, ...]
    skipped: tuple[Skipped, ...]
    remarks: tuple[str, ...] = ()


def usable_runs(items: Iterable[Run | Skipped], cluster: Cluster | None = None) -> UsableRuns:
    """Group the runs of a table by setting; a run without a time, or that cannot be priced, is skipped.

    Runs on the device of ``cluster`` are priced on that cluster.
    """
    same: dict[int, list[Run]] = {}
    skipped: list[Skipped] = []
    for item in items:
        if isinstance(item, Skipped):
            skipped.append(item)
        elif item.step_time_s and item.outcome == "ok":
            same.setdefault(id(item.given), []).append(item)
        else:
            reason = "ran out of memory" if item.outcome == "oom" else "step_time_s: not given"
            skipped.append(_skipped(item, reason))
    found = {key: tuple(_observations(runs, cluster, skipped)) for key, runs in same.items()}
    models = dict.fromkeys(same[key][0].given.model or "" for key in found if found[key])
    absent = (
        f"{name} is not on this machine: its columns stand for it" for name in models if is_absent(name)
    )
    guessed = (f"{run.run_id}: {remark}" for runs in same.values() for run in runs for remark in run.remarks)
    return UsableRuns(
        tuple(chain.from_iterable(found.values())),
        tuple(sorted(skipped, key=lambda run: run.line)),
        (*absent, *guessed),
    )


def _skipped(run: Run, reason: str) -> Skipped:
    return Skipped(run.line, run.run_id, run.source, reason)


def _observations(runs: list[Run], cluster: Cluster | None, skipped: list[Skipped]) -> Iterator[Observation]:
    """Yield the runs of one setting; unusable ones go to ``skipped``."""
    try:
        setting = setting_of(runs[0].given, cluster)
    except InputError as error:
        reason = "; ".join(f"{problem.field}: {problem.rule}" for problem in error.problems)
        skipped += [_skipped(run, reason) for run in runs]
        return
    legal: list[tuple[Run, RunPlan]] = []
    for run in runs:
        plan = run_plan(run.chosen, setting.cluster.devices)
        reason = "; ".join(faults(plan, setting))
        if reason:
            skipped.append(_skipped(run, reason))
        else:
            legal.append((run, plan))
    for numbers, plans in plan_arrays([plan for _, plan in legal], setting):
        members = [legal[number][0] for number in numbers]
        measured = np.array([run.step_time_s for run in members], dtype=np.float64)
        yield Observation(setting, plans, measured, tuple(run.source for run in members))
