"""Validate a table of measured runs: read it, predict every run, compare."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.units import GIB
from meshwright.validation.error_summary import summarise
from meshwright.validation.predict_runs import Predictions, predict_runs
from meshwright.validation.read_run_table import Run, Skipped, read_runs
from meshwright.validation.run_recommendation import recommended_rows

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Validation:
    """Predictions and measurements, in the order of the table; ``skipped`` runs have no prediction."""

    runs: tuple[Run, ...]
    predicted: Predictions
    skipped: tuple[Skipped, ...]
    summary: dict[str, Any]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield every predicted run in the public form."""
        p = self.predicted
        for number in np.flatnonzero(p.made).tolist():
            run = self.runs[number]
            yield {
                "run_id": run.run_id,
                "source": run.source,
                "predicted_step_time_s": float(p.step_s[number]),
                "step_time_low_s": float(p.low_s[number]),
                "step_time_high_s": float(p.high_s[number]),
                "measured_step_time_s": run.step_time_s,
                "predicted_memory_gib": float(p.memory_bytes[number]) / GIB,
                "measured_memory_gib": run.memory_gib,
                "predicted_fits": bool(p.fits[number]),
                "measured_outcome": run.outcome,
                "remarks": list(run.remarks),
            }

    def skipped_rows(self) -> Iterator[dict[str, str]]:
        """Yield every run without a prediction in the public form."""
        for run in self.skipped:
            yield {"run_id": run.run_id, "source": run.source, "reason": run.reason}

    def reasons(self) -> dict[str, int]:
        """Return the reasons for skipped runs, most frequent first."""
        return dict(Counter(run.reason for run in self.skipped).most_common())

    def skipped_ids(self) -> dict[str, list[str]]:
        """Return the ids of skipped runs by the reason, most frequent first."""
        found: dict[str, list[str]] = {reason: [] for reason in self.reasons()}
        for run in self.skipped:
            found[run.reason].append(run.run_id)
        return found

    def points(self) -> dict[str, tuple[Floats, Floats]]:
        """Return measured and predicted seconds by source, for a picture."""
        measured = np.array([run.step_time_s or np.nan for run in self.runs], dtype=np.float64)
        found: dict[str, list[int]] = {}
        for number in np.flatnonzero(self.predicted.made & np.isfinite(measured)).tolist():
            found.setdefault(self.runs[number].source, []).append(number)
        return {name: (measured[rows], self.predicted.step_s[rows]) for name, rows in found.items()}

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready data in the public form."""
        return {"rows": list(self.rows()), "skipped": list(self.skipped_rows()), "summary": self.summary}


def validate_runs(path: str | Path) -> Validation:
    """Validate the runs of a CSV file. Raises InputError for a file that is not a table of runs."""
    runs: list[Run] = []
    skipped: list[Skipped] = []
    lines: Counter[str] = Counter()
    for item in read_runs(path):
        lines[item.source] += 1
        if isinstance(item, Run):
            runs.append(item)
        else:
            skipped.append(item)
    predicted = predict_runs(runs)
    skipped += [
        Skipped(runs[number].line, runs[number].run_id, runs[number].source, reason)
        for number, reason in predicted.reasons.items()
    ]
    skipped.sort(key=lambda run: run.line)
    summary = summarise(runs, predicted, dict(lines), partial(recommended_rows, runs, predicted))
    return Validation(tuple(runs), predicted, tuple(skipped), summary)
