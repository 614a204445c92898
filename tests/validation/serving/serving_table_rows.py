"""Tables of serving runs for tests: one good row, changed as a test needs it."""

import csv

from meshwright.validation.serving.read_serving_table import COLUMNS, read_serving_table

GOOD = {
    "id": "r",
    "source": "s",
    "model": "Llama 3.1 8B",
    "gpu": "H100 SXM 80GB",
    "gpus": "2",
    "engine": "vllm 0.18.0",
    "tp": "2",
    "weight_precision": "fp8",
    "isl": "1000",
    "osl": "500",
    "concurrency": "16",
    "throughput_tok_s": "3000",
    "throughput_kind": "output",
    "ttft_ms": "200",
    "tpot_ms": "20",
}
WITH_EXPERTS = {"model": "Mixtral 8x7B", "gpus": "8", "tp": "2", "dp": "4", "ep": "8"}


def row(**changes):
    """The good row with changes."""
    return {**GOOD, **{name: str(value) for name, value in changes.items()}}


def write(path, rows, columns=COLUMNS):
    """A table with these rows; returns its path."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def read(path, *rows):
    """What is read of a table with these rows."""
    return list(read_serving_table(write(path, rows)))
