"""Predict runs, those with the same setting at once, by the closed forms over arrays of plans.

A setting is built once for all runs with equal ``SettingColumns``, and its distinct plans are evaluated together; a
million runs of few settings are a few calls. A run whose setting or plan cannot be priced gets a reason instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.cost.flops_per_token import model_flops_per_token
from meshwright.cost.uncertainty.step_error import StepError, plan_errors
from meshwright.errors import InputError
from meshwright.plans.setting import Setting
from meshwright.validation.read_run_table import Run
from meshwright.validation.run_plan import faults, plan_arrays, run_plan
from meshwright.validation.run_setting import setting_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Predictions:
    """One entry per run, NaN without a prediction; ``reasons`` explains those, by number of the run.

    ``step_s`` and ``memory_bytes`` are predicted; ``ideal_s`` is the model's FLOPs of a step at the dense peak of all
    devices, so that ``ideal_s / step_s`` is MFU. ``low_s`` and ``high_s`` bound the 80 % interval of ``step_s``.
    """

    step_s: Floats
    low_s: Floats
    high_s: Floats
    memory_bytes: Floats
    fits: NDArray[np.bool_]
    ideal_s: Floats
    reasons: dict[int, str]

    @property
    def made(self) -> NDArray[np.bool_]:
        """Mask of the runs that are predicted."""
        return np.isfinite(self.step_s)


def predict_runs(runs: Sequence[Run], *, intervals: bool = True) -> Predictions:
    """Predict every run that can be priced; without ``intervals``, which cost most of the time, those are NaN."""
    count = len(runs)
    result = Predictions(
        step_s=np.full(count, np.nan),
        low_s=np.full(count, np.nan),
        high_s=np.full(count, np.nan),
        memory_bytes=np.full(count, np.nan),
        fits=np.zeros(count, dtype=np.bool_),
        ideal_s=np.full(count, np.nan),
        reasons={},
    )
    same: dict[int, list[int]] = {}
    for number, run in enumerate(runs):
        same.setdefault(id(run.given), []).append(number)
    for numbers in same.values():
        _predict_setting(runs, np.array(numbers, dtype=np.int64), result, intervals)
    return result


def _predict_setting(runs: Sequence[Run], numbers: Ints, result: Predictions, intervals: bool) -> None:
    """Fill in the runs of one setting."""
    try:
        setting = setting_of(runs[numbers[0]].given)
    except InputError as error:
        reason = "; ".join(f"{p.field}: {p.rule}" for p in error.problems)
        result.reasons.update(dict.fromkeys(numbers.tolist(), reason))
        return
    result.ideal_s[numbers] = ideal_step_s(setting)
    index: dict[int, int] = {}
    which = np.array([index.setdefault(id(runs[n].chosen), len(index)) for n in numbers], dtype=np.int64)
    _, first = np.unique(which, return_index=True)
    plans = [run_plan(runs[n].chosen, setting.cluster.devices) for n in numbers[first]]
    reasons = ["; ".join(faults(plan, setting)) for plan in plans]
    legal = np.array([not reason for reason in reasons], dtype=np.bool_)
    bad = np.flatnonzero(~legal[which])
    result.reasons.update({int(numbers[i]): reasons[which[i]] for i in bad})
    if not legal.any():
        return
    good = np.flatnonzero(legal)
    step_s, memory, low, high = (np.full(len(plans), np.nan) for _ in range(4))
    fits = np.zeros(len(plans), dtype=np.bool_)
    for members, arrays in plan_arrays([plans[number] for number in good], setting):
        estimates = evaluate(arrays, setting)
        step_s[good[members]], memory[good[members]] = estimates.step_s, estimates.total_bytes
        fits[good[members]] = estimates.fits
        if intervals:
            low[good[members]], high[good[members]] = _ends(plan_errors(arrays, setting))
    result.step_s[numbers], result.memory_bytes[numbers] = step_s[which], memory[which]
    result.low_s[numbers] = low[which] * step_s[which]
    result.high_s[numbers] = high[which] * step_s[which]
    result.fits[numbers] = fits[which]


def _ends(errors: Sequence[StepError]) -> tuple[Floats, Floats]:
    """Return the ends of each 80 % interval, as factors."""
    intervals = [error.interval for error in errors]
    return np.array([one.low for one in intervals]), np.array([one.high for one in intervals])


def ideal_step_s(setting: Setting) -> float:
    """Return the seconds of a step with all devices at their dense peak: the numerator of MFU."""
    flops = model_flops_per_token(setting.model, setting.workload.seq_len, causal=False)
    peak = setting.cluster.pool.device.peak_flops[setting.workload.peak_precision]
    return flops * setting.workload.tokens_per_step / (peak * setting.cluster.devices)
