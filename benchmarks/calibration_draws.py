"""Calibrate on a few runs of a source that the constants have not seen, many times, and see what it gains.

    python benchmarks/calibration_draws.py RUNS.csv            prints the page
    python benchmarks/calibration_draws.py RUNS.csv --write    also writes benchmarks/calibration-draws.md

For every source the constants are those of benchmarks/left-out-constants.csv: fitted without it. In every draw k of its
runs on one kind of device are taken at random, ``calibrate`` fits its three constants to them, and all other runs of
that device are predicted before and after. Where ``calibrate`` expects no gain it refuses, and after is before.
"""

import csv
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
from accuracy import table

from meshwright import __version__
from meshwright.calibration.calibrate_cluster import fit_cluster_constants
from meshwright.calibration.observations import Observation, with_values
from meshwright.calibration.usable_runs import usable_runs
from meshwright.present.console import percent
from meshwright.validation.read_run_table import Run, read_runs

DRAWS, SIZES = 50, (3, 8)
HELD_OUT = 60
"""Runs that a draw is judged by, at most: more would only take longer."""
HERE = Path(__file__).parent


def left_out_values() -> dict[str, dict[str, float]]:
    """The constants that were fitted without each source."""
    found: dict[str, dict[str, float]] = {}
    with (HERE / "left-out-constants.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            found.setdefault(row["source"], {})[row["constant"]] = float(row["value"])
    return found


def single_runs(observations: Sequence[Observation], values: Mapping[str, float]) -> list[Observation]:
    """One observation per run, its setting with the given constants."""
    return [
        Observation(
            with_values(o.setting, values), o.plans.take(np.array([i])), o.measured_s[i : i + 1], ("own",)
        )
        for o in observations
        for i in range(len(o.plans))
    ]


def draw(runs: Sequence[Observation], size: int, rng: np.random.Generator) -> tuple[float, float, bool]:
    """Mean absolute error of the runs that were not drawn, before and after, and whether it was accepted."""
    order = rng.permutation(len(runs))
    own, rest = [runs[i] for i in order[:size]], [runs[i] for i in order[size : size + HELD_OUT]]
    found = fit_cluster_constants(own)
    before = _error(rest, {})
    return before, _error(rest, found.values) if found.helps else before, found.helps


def _error(runs: Sequence[Observation], values: Mapping[str, float]) -> float:
    calibrated = [
        replace(
            run.setting,
            cluster=replace(
                run.setting.cluster, calibration=(*run.setting.cluster.calibration, *values.items())
            ),
        )
        for run in runs
    ]
    found = [
        replace(run, setting=setting).log_errors({}) for run, setting in zip(runs, calibrated, strict=True)
    ]
    return float(np.abs(np.expm1(np.concatenate(found))).mean())


def line(source: str, device: str, runs: Sequence[Observation], size: int) -> list[str]:
    """One line of the table."""
    rng = np.random.default_rng(0)
    drawn = np.array([draw(runs, size, rng) for _ in range(DRAWS)])
    before, after, accepted = drawn.mean(0)
    worse = float((drawn[:, 1] > drawn[:, 0] + 1e-12).mean())
    return [source, device, str(size), *map(percent, (before, after, accepted, worse))]


def lines(path: str) -> list[list[str]]:
    """One line per source, device and number of runs."""
    observations = usable_runs([run for run in read_runs(path) if isinstance(run, Run)]).observations
    asked = []
    for source, values in left_out_values().items():
        mine = [o for o in observations if source in o.sources]
        for device in dict.fromkeys(o.setting.cluster.pool.device.id for o in mine):
            runs = single_runs([o for o in mine if o.setting.cluster.pool.device.id == device], values)
            asked += [(source, device, runs, size) for size in SIZES if len(runs) >= 2 * max(SIZES)]
    with ProcessPoolExecutor() as processes:
        return list(processes.map(line, *zip(*asked, strict=True)))


def page(path: str) -> str:
    """The table with its explanation."""
    header = ["source", "device", "runs", "error before", "after", "accepted", "worse"]
    return f"""# Calibration on a few runs of one cluster

Expected error of step times before and after `meshwright calibrate` on a few runs, over {DRAWS} random draws from
published runs of a source that the constants have not seen (fits of [left-out](left-out.md)); by version {__version__}
on {date.today().isoformat()}. Errors are means of abs(predicted/measured − 1) over runs of the same device that were
not drawn. *Accepted* are draws in which `calibrate` expected a gain; in the others nothing changes. *Worse* are draws
after which the error is larger. Made by `python benchmarks/calibration_draws.py RUNS.csv --write`.

{table(header, lines(path))}"""


def main(path: str, options: list[str]) -> None:
    """Print the page, and write it where asked."""
    text = page(path)
    print(text)
    if "--write" in options:
        (HERE / "calibration-draws.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
