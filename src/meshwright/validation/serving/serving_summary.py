"""Summarise predictions of serving runs: of every source, and of all, coverage, errors and the choice of layouts.

``coverage`` is the share of runs with model, device, both lengths and a load that are predicted. Errors are of the
runs with both a measured and a predicted value.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshwright.validation.error_metrics import error_figures
from meshwright.validation.serving.layout_choice import judge, layout_figures, layout_groups
from meshwright.validation.serving.serving_prediction import ServingPrediction
from meshwright.validation.serving.serving_row import ServingRow, SkippedRow

ALL = "all"
FIGURES = {"ttft": "ttft_s", "tpot": "tpot_s", "throughput": "output_tokens_per_s_per_device"}
"""Names in the public form by those of measured and predicted values."""


def summarise_serving(
    rows: Sequence[ServingRow], predicted: Sequence[ServingPrediction], skipped: Sequence[SkippedRow]
) -> dict[str, Any]:
    """Return the summary of all runs and of each source. ``predicted`` is aligned with ``rows``."""
    complete = Counter(row.source for row in rows)
    complete.update(row.source for row in skipped if row.complete)
    sources = dict.fromkeys([*(row.source for row in rows), *(row.source for row in skipped)])
    rates = [one.output_tokens_per_s_per_device for one in predicted]
    throughput = np.array([np.nan if rate is None else rate.value for rate in rates], dtype=np.float64)
    choices = [(group.source, judge(group)) for group in layout_groups(rows, throughput)]

    def summary(numbers: Sequence[int], runs: int, source: str | None) -> dict[str, Any]:
        return {
            "coverage": len(numbers) / runs if runs else None,
            **{
                name: metric_errors(name, [rows[n] for n in numbers], [predicted[n] for n in numbers])
                for name in FIGURES
            },
            "layouts": layout_figures([choice for name, choice in choices if source in (None, name)]),
        }

    members: dict[str, list[int]] = {source: [] for source in sources}
    for number, row in enumerate(rows):
        members[row.source].append(number)
    every = summary(range(len(rows)), complete.total(), None)
    return {ALL: every, **{name: summary(members[name], complete[name], name) for name in sources}}


def metric_errors(
    metric: str, rows: Sequence[ServingRow], predicted: Sequence[ServingPrediction]
) -> dict[str, Any]:
    """Return the errors of one metric (``FIGURES``) of some runs."""
    field = FIGURES[metric]
    pairs = (
        (getattr(row.measured, field), getattr(one, field)) for row, one in zip(rows, predicted, strict=True)
    )
    found = [
        (one.value, one.low, one.high, value) for value, one in pairs if value is not None and one is not None
    ]
    return error_figures(*np.array(found, dtype=np.float64).reshape(-1, 4).T)
