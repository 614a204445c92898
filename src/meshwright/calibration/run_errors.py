"""Errors of serving runs as logarithms of measured over predicted values, with their groups."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.levels import METRICS, Group, Metric
from meshwright.stack.serving.level_file import LARGEST
from meshwright.validation.serving.predict_rows import RunTimes
from meshwright.validation.serving.serving_row import ServingRow

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RunErrors:
    """Errors of runs, one entry for each; ``log_errors`` has a column for each metric, NaN without a value.

    ``disaggregated`` where prefill has a pool of its own.
    """

    groups: tuple[Group, ...]
    disaggregated: NDArray[np.bool_]
    log_errors: Floats

    def of(self, metric: Metric) -> Floats:
        """Return the errors of one metric."""
        return self.log_errors[:, METRICS.index(metric)]

    def take(self, numbers: Sequence[int] | NDArray[np.int64]) -> "RunErrors":
        """Return the errors of some runs."""
        chosen = np.asarray(numbers, dtype=np.int64)
        groups = tuple(self.groups[number] for number in chosen)
        return RunErrors(groups, self.disaggregated[chosen], self.log_errors[chosen])

    def members(self) -> dict[Group, NDArray[np.int64]]:
        """Return the numbers of each group's runs."""
        found: dict[Group, list[int]] = {}
        for number, group in enumerate(self.groups):
            found.setdefault(group, []).append(number)
        return {group: np.array(numbers) for group, numbers in found.items()}


def run_errors(rows: Sequence[ServingRow], times: RunTimes) -> RunErrors:
    """Return the errors of predictions without levels. ``times`` are aligned with ``rows``.

    Beyond a factor of 150 an error counts as that much. The first token of a request that waits for room has no level
    of its own.
    """
    nothing = np.nan
    measured = np.array(
        [
            [
                nothing if value is None else value
                for value in (
                    row.measured.ttft_s,
                    row.measured.tpot_s,
                    row.measured.output_tokens_per_s_per_device,
                )
            ]
            for row in rows
        ],
        dtype=np.float64,
    ).reshape(-1, len(METRICS))
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.log(measured / np.stack([times.ttft_s, times.tpot_s, times.throughput], axis=1))
    errors[times.waits, 0] = nothing
    return RunErrors(
        groups=tuple(Group(*row.inputs.level_group) for row in rows),
        disaggregated=np.array([len(row.inputs.workers) > 1 for row in rows], dtype=bool),
        log_errors=np.where(np.isfinite(errors), np.clip(errors, -LARGEST, LARGEST), nothing),
    )
