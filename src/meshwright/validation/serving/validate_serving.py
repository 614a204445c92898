"""Validate a table of measured serving runs with a predictor: read it, predict every run, compare."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.validation.serving.read_serving_table import read_serving_table
from meshwright.validation.serving.serving_prediction import Interval, Predictor, ServingPrediction
from meshwright.validation.serving.serving_row import ServingRow, SkippedRow
from meshwright.validation.serving.serving_summary import summarise_serving

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ServingValidation:
    """Predictions aligned with ``runs``, in the order of the table; ``skipped`` runs have none."""

    runs: tuple[ServingRow, ...]
    predicted: tuple[ServingPrediction, ...]
    skipped: tuple[SkippedRow, ...]
    summary: dict[str, Any]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield every predicted run in the public form."""
        rate = "output_tokens_per_s_per_device"
        for run, one in zip(self.runs, self.predicted, strict=True):
            yield {
                "id": run.id,
                **_cells(one.ttft_s, "predicted_ttft_s", "ttft_low_s", "ttft_high_s"),
                **_cells(one.tpot_s, "predicted_tpot_s", "tpot_low_s", "tpot_high_s"),
                **_cells(getattr(one, rate), f"predicted_{rate}", "throughput_low", "throughput_high"),
            }

    def skipped_rows(self) -> Iterator[dict[str, str]]:
        """Yield every run without a prediction in the public form."""
        for run in self.skipped:
            yield {"id": run.id, "reason": run.reason}

    def skipped_ids(self) -> dict[str, list[str]]:
        """Return the ids of skipped runs by the reason, most frequent first."""
        counts = Counter(run.reason for run in self.skipped)
        found: dict[str, list[str]] = {reason: [] for reason, _ in counts.most_common()}
        for run in self.skipped:
            found[run.reason].append(run.id)
        return found

    def levels(self) -> dict[str, tuple[int, int]]:
        """Return the levels that were applied by name, with the runs behind each and the runs here that have it."""
        runs = Counter((one.level.name, one.level.rows) for one in self.predicted if one.level)
        return {name: (behind, here) for (name, behind), here in sorted(runs.items())}

    def points(self) -> dict[str, tuple[Floats, Floats]]:
        """Return measured and predicted seconds per output token by source, for a picture."""
        found: dict[str, list[tuple[float, float]]] = {}
        for run, one in zip(self.runs, self.predicted, strict=True):
            if run.measured.tpot_s is not None and one.tpot_s is not None:
                found.setdefault(run.source, []).append((run.measured.tpot_s, one.tpot_s.value))
        return {name: (np.array(pairs)[:, 0], np.array(pairs)[:, 1]) for name, pairs in found.items()}

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready data in the public form."""
        return {"rows": list(self.rows()), "skipped": list(self.skipped_rows()), "summary": self.summary}


def _cells(interval: Interval | None, value: str, low: str, high: str) -> dict[str, float | None]:
    if interval is None:
        return dict.fromkeys((value, low, high))
    return {value: interval.value, low: interval.low, high: interval.high}


def validate_serving(path: str | Path, predictor: Predictor) -> ServingValidation:
    """Validate the runs of a CSV file. Raises InputError for a file that is not a table of serving runs.

    Runs with equal inputs are predicted once.
    """
    items = [*read_serving_table(path)]
    inputs = [*dict.fromkeys(item.inputs for item in items if isinstance(item, ServingRow))]
    outcomes = dict(zip(inputs, predictor(inputs), strict=True))
    rows: list[ServingRow] = []
    predicted: list[ServingPrediction] = []
    skipped: list[SkippedRow] = []
    for item in items:
        if isinstance(item, SkippedRow):
            skipped.append(item)
            continue
        found = outcomes[item.inputs]
        if isinstance(found, str):
            skipped.append(SkippedRow(id=item.id, source=item.source, reason=found, complete=True))
        else:
            rows.append(item)
            predicted.append(found)
    summary = summarise_serving(rows, predicted, skipped)
    return ServingValidation(tuple(rows), tuple(predicted), tuple(skipped), summary)
