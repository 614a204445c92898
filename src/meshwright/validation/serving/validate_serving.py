"""Validate a table of measured serving runs with a predictor: read it, predict every run, compare."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.validation.serving.read_serving_table import read_serving_table
from meshwright.validation.serving.serving_prediction import Interval, Predictor, ServingPrediction
from meshwright.validation.serving.serving_row import ServingRow, SkippedRow
from meshwright.validation.serving.serving_summary import summarise_serving


@dataclass(frozen=True)
class ServingValidation:
    """Predictions aligned with ``rows``, in the order of the table; ``skipped`` runs have none."""

    rows: tuple[ServingRow, ...]
    predicted: tuple[ServingPrediction, ...]
    skipped: tuple[SkippedRow, ...]
    summary: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready data in the public form."""
        skipped = [{"id": row.id, "reason": row.reason} for row in self.skipped]
        return {"rows": list(self._json_rows()), "skipped": skipped, "summary": self.summary}

    def _json_rows(self) -> Iterator[dict[str, Any]]:
        for row, one in zip(self.rows, self.predicted, strict=True):
            rate = "output_tokens_per_s_per_device"
            yield {
                "id": row.id,
                **_cells(one.ttft_s, "predicted_ttft_s", "ttft_low_s", "ttft_high_s"),
                **_cells(one.tpot_s, "predicted_tpot_s", "tpot_low_s", "tpot_high_s"),
                **_cells(getattr(one, rate), f"predicted_{rate}", "throughput_low", "throughput_high"),
            }


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
