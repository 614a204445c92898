"""A table of serving runs of one group, measured as predicted times a factor and small errors."""

import csv

from meshwright.validation.serving.predict_rows import predict_rows
from meshwright.validation.serving.read_serving_table import read_serving_table

ERRORS = (0.98, 1.03, 1.0, 0.96, 1.02, 1.01, 0.99, 1.04)
COLUMNS = (
    "id",
    "source",
    "model",
    "gpu",
    "gpus",
    "engine",
    "tp",
    "isl",
    "osl",
    "concurrency",
    "ttft_ms",
    "tpot_ms",
)


def slow_table(path, factor, errors=ERRORS):
    """Write a table and return its path; without a factor nothing was measured."""
    rows = [
        {
            "id": f"r{place}",
            "source": "s",
            "model": "llama-3.2-3b",
            "gpu": "h100-sxm-80gb",
            "gpus": 1,
            "engine": "vllm 0.18",
            "tp": 1,
            "isl": 500 * (1 + place % 3),
            "osl": 200,
            "concurrency": 4 * (1 + place),
        }
        for place, _ in enumerate(errors)
    ]
    _write(path, rows)
    if factor is not None:
        found = predict_rows([row.inputs for row in read_serving_table(path)])
        for place, (row, error) in enumerate(zip(rows, errors, strict=True)):
            row["ttft_ms"] = 1e3 * found.ttft_s[place] * factor * error
            row["tpot_ms"] = 1e3 * found.tpot_s[place] * factor * error
        _write(path, rows)
    return path


def _write(path, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)
