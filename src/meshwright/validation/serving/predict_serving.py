"""Predict serving runs with the levels of their models, devices and engines, and with 80 % intervals."""

from collections.abc import Sequence
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.levels import (
    Level,
    LevelOf,
    LevelTable,
    LoadKind,
    ServedMeans,
    interval,
    level_of,
    levelled,
)
from meshwright.validation.serving.predict_rows import RunTimes, predict_rows
from meshwright.validation.serving.row_pools import run_load
from meshwright.validation.serving.serving_prediction import Interval, Outcome, ServingPrediction
from meshwright.validation.serving.serving_row import ServingInputs


def predict_serving(runs: Sequence[ServingInputs], calibration: LevelTable | None = None) -> list[Outcome]:
    """Return the prediction of each run, or the reason why it has none."""
    return levelled_predictions(runs, predict_rows(runs), [run_level(run, calibration) for run in runs])


def run_level(run: ServingInputs, calibration: LevelTable | None = None) -> Level:
    """Return the level of a run: that of a calibration, or the shipped one."""
    return level_of(*run.level_group, calibration, disaggregated=len(run.workers) > 1)


def levelled_predictions(
    runs: Sequence[ServingInputs], times: RunTimes, levels: Sequence[Level]
) -> list[Outcome]:
    """Return the predictions of runs from their means without levels."""
    predicted: list[Outcome] = list(times.reasons)
    alike: dict[Level, list[int]] = {}
    for number, level in enumerate(levels):
        if not times.reasons[number]:
            alike.setdefault(level, []).append(number)
    for level, numbers in alike.items():
        means = _levelled(runs, times, level, np.array(numbers))
        for place, number in enumerate(numbers):
            predicted[number] = ServingPrediction(
                ttft_s=_interval(means.ttft_s[place], level.ttft),
                tpot_s=_interval(means.tpot_s[place], level.tpot),
                output_tokens_per_s_per_device=_interval(means.requests_per_s[place], level.throughput),
                level=level,
            )
    return predicted


def _levelled(
    runs: Sequence[ServingInputs], times: RunTimes, level: Level, numbers: NDArray[np.int64]
) -> ServedMeans:
    """Return levelled times, and levelled output tokens/s of a device in place of requests/s."""
    chosen = [runs[number] for number in numbers]
    load = run_load(chosen)
    output = np.array([run.output_tokens for run in chosen], dtype=np.float64)
    tokens = output / np.array([run.devices for run in chosen])
    kind = LoadKind(
        concurrency=load.concurrency, rate_per_s=load.rate_per_s, steps=output - 1, waits=times.waits[numbers]
    )
    requests = times.throughput[numbers] / tokens
    means = levelled(ServedMeans(times.ttft_s[numbers], times.tpot_s[numbers], requests), kind, level)
    return means._replace(requests_per_s=means.requests_per_s * tokens)


def _interval(value: float, level: LevelOf) -> Interval | None:
    if not isfinite(value):
        return None
    low, high = interval(value, level)
    return Interval(float(value), float(low), float(high))
