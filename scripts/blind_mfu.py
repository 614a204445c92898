"""Recompute the utilisations of the baseline ``blind_mfu`` from a table of calibration runs.

    python scripts/blind_mfu.py RUNS.csv

Writes src/meshwright/validation/data/blind_mfu.csv: the median measured MFU for each device and precision. The runs
themselves stay outside; the file names their sources.
"""

import csv
import sys
from collections import defaultdict
from datetime import date
from pathlib import Path
from statistics import median

from meshwright.validation.predict_runs import predict_runs
from meshwright.validation.read_run_table import Run, read_runs

TARGET = Path(__file__).resolve().parents[1] / "src/meshwright/validation/data/blind_mfu.csv"
COLUMNS = ("device", "precision", "mfu", "runs", "origin")


def rows(path: str) -> list[tuple[object, ...]]:
    """One row for each device and precision of the runs that have a measured time."""
    runs = [item for item in read_runs(path) if isinstance(item, Run)]
    ideal = predict_runs(runs, intervals=False).ideal_s
    found: dict[tuple[str, str], list[tuple[float, str]]] = defaultdict(list)
    for run, seconds in zip(runs, ideal.tolist(), strict=True):
        if run.step_time_s and seconds == seconds:  # not NaN
            kind = (run.given.device, run.given.precision or "bf16")
            found[kind].append((seconds / run.step_time_s, run.source))
    return [
        (*kind, f"{median(mfu for mfu, _ in all_):.4f}", len(all_), _origin({source for _, source in all_}))
        for kind, all_ in sorted(found.items())
    ]


def _origin(sources: set[str]) -> str:
    return f"median of published runs; {'; '.join(sorted(sources))}; computed {date.today().isoformat()}"


if __name__ == "__main__":
    with TARGET.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows(sys.argv[1]))
    print(f"wrote {TARGET}")
