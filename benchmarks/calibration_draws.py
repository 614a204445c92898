"""Calibrate on a few runs of a source that the constants have not seen, many times, and see what it gains.

    python benchmarks/calibration_draws.py RUNS.csv            prints the page
    python benchmarks/calibration_draws.py RUNS.csv --write    also writes benchmarks/calibration-draws.md
    python benchmarks/calibration_draws.py RUNS.csv --eight    draws eight runs too, which takes six times as long

For every source the constants are those of benchmarks/left-out-constants.csv: fitted without it. In every draw k of its
runs on one kind of device are taken at random, ``calibrate`` fits its three constants to them, and all other runs of
that device are predicted before and after. Where ``calibrate`` expects no gain it refuses, and after is before.
"""

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
from accuracy import table

from meshwright import __version__
from meshwright.calibration.calibrate_cluster import WIDTHS, fit_cluster_constants
from meshwright.calibration.fitted_constants import FitTables, FittedConstants
from meshwright.calibration.observations import Floats, Observation
from meshwright.calibration.usable_runs import usable_runs
from meshwright.cost.constant_values import with_values
from meshwright.cost.uncertainty.constant_draws import ConstantDraws
from meshwright.cost.uncertainty.constants_error import log_responses, middle_of
from meshwright.cost.uncertainty.error_parts import error_parts
from meshwright.cost.uncertainty.interval import Interval
from meshwright.cost.uncertainty.seen_runs import models
from meshwright.present.console import percent
from meshwright.validation.read_run_table import Run, read_runs

DRAWS, SIZES = 50, (3, 8)
HELD_OUT = 60
"""Runs that a draw is judged by, at most: more would only take longer."""
HERE = Path(__file__).parent
LEFT_OUT = FitTables(HERE / "left-out-constants.csv", HERE / "left-out-factors.csv")
TABLE = HERE.parent / "src/meshwright/cost/data/calibrated_error.csv"


class SingleRun(NamedTuple):
    """A run under constants fitted without its source, and what the doubt about the constants alone does to it.

    ``fitted``: the interval if all constants are drawn; ``calibrated``: without those that ``calibrate`` fits.
    """

    observation: Observation
    fitted: Interval
    calibrated: Interval


def single_runs(observations: Sequence[Observation], constants: FittedConstants) -> list[SingleRun]:
    """Return every run by itself."""
    every = constants.draws
    known = np.isin([name.rpartition(":")[2].rpartition("/")[2] for name in every.names], list(WIDTHS))
    rest = replace(every, log_factors=np.where(known, 0.0, every.log_factors))
    return [
        SingleRun(Observation(setting, o.plans.take(np.array([i])), o.measured_s[i : i + 1], ("own",)), *ends)
        for o in observations
        for setting in [with_values(o.setting, constants.values)]
        for i, *ends in zip(range(len(o.plans)), _intervals(o, every), _intervals(o, rest), strict=True)
    ]


def _intervals(one: Observation, draws: ConstantDraws) -> list[Interval]:
    low, high = middle_of(log_responses(one.plans, one.setting, draws))
    return [Interval(*ends) for ends in zip(np.exp(low).tolist(), np.exp(high).tolist(), strict=True)]


class Draw(NamedTuple):
    """What a draw did to the runs that were not drawn.

    ``before`` and ``after`` are mean absolute errors, ``sigma`` the error that ``calibrate`` expects, ``inside`` the
    share of the runs in the 80 % interval that follows.
    """

    before: float
    after: float
    accepted: bool
    sigma: float
    inside: float


def draw(runs: Sequence[SingleRun], size: int, rng: np.random.Generator) -> Draw:
    """Calibrate on runs that are drawn, and predict the others. A refused calibration changes nothing."""
    order = rng.permutation(len(runs))
    held = [runs[i] for i in order[size : size + HELD_OUT]]
    rest = [run.observation for run in held]
    found = fit_cluster_constants([runs[i].observation for i in order[:size]])
    before = _errors(rest, {})
    after = _errors(rest, found.values) if found.helps else before
    unseen = error_parts()[f"{models(rest[0].setting)} unseen"].interval
    other = Interval.around(found.sigma) if found.helps else unseen
    intervals = [other.combined(run.calibrated if found.helps else run.fitted) for run in held]
    ratios = np.exp(-after).tolist()
    inside = _mean_of(one.low <= ratio <= one.high for one, ratio in zip(intervals, ratios, strict=True))
    return Draw(_mean(before), _mean(after), found.helps, found.sigma, inside)


def _mean_of(values: Iterable[bool]) -> float:
    return float(np.mean(list(values)))


def _mean(errors: Floats) -> float:
    return float(np.abs(np.expm1(errors)).mean())


def _errors(runs: Sequence[Observation], values: Mapping[str, float]) -> Floats:
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
    return np.concatenate(found)


def drawn(source: str, device: str, runs: Sequence[SingleRun], size: int) -> tuple[str, str, int, list[Draw]]:
    """Draw many times."""
    rng = np.random.default_rng(0)
    return source, device, size, [draw(runs, size, rng) for _ in range(DRAWS)]


def line(source: str, device: str, size: int, draws: Sequence[Draw]) -> list[str]:
    """One line of the table."""
    before, after, accepted, sigma, inside = np.array(draws, dtype=np.float64).mean(0)
    worse = float(np.mean([one.after > one.before + 1e-12 for one in draws]))
    return [
        source,
        device,
        str(size),
        *map(percent, (before, after, accepted, worse)),
        f"{sigma:.3f}",
        percent(inside),
    ]


def all_draws(path: str, sizes: Sequence[int]) -> list[tuple[str, str, int, list[Draw]]]:
    """The draws of every source, device and number of runs."""
    observations = usable_runs([run for run in read_runs(path) if isinstance(run, Run)]).observations
    asked = []
    for source, constants in LEFT_OUT.read().items():
        mine = [o for o in observations if source in o.sources]
        for device in dict.fromkeys(o.setting.cluster.pool.device.id for o in mine):
            runs = single_runs([o for o in mine if o.setting.cluster.pool.device.id == device], constants)
            asked += [(source, device, runs, size) for size in sizes if len(runs) >= 2 * max(SIZES)]
    with ProcessPoolExecutor() as processes:
        return list(processes.map(drawn, *zip(*asked, strict=True)))


def page(found: Sequence[tuple[str, str, int, list[Draw]]]) -> str:
    """The table with its explanation."""
    header = [
        "source",
        "device",
        "runs",
        "error before",
        "after",
        "accepted",
        "worse",
        "expected sigma",
        "inside",
    ]
    lines = [line(*one) for one in found]
    return f"""# Calibration on a few runs of one cluster

Expected error of step times before and after `meshwright calibrate` on a few runs, over {DRAWS} random draws from
published runs of a source that the constants have not seen (fits of [left-out](left-out.md)); by version {__version__}
on {date.today().isoformat()}. Errors are means of abs(predicted/measured − 1) over runs of the same device that were
not drawn. *Accepted* are draws in which `calibrate` expected a gain; in the others nothing changes. *Worse* are draws
after which the error is larger. *Expected sigma* is the mean standard deviation of log(measured/predicted) that
`calibrate` writes into the cluster file, *inside* the share of the runs that were not drawn in the 80 % interval that
follows from it and from what is not known of the other constants. Made by
`python benchmarks/calibration_draws.py RUNS.csv --write`.

{table(header, lines)}"""


def main(path: str, options: list[str]) -> None:
    """Print the page, and write it where asked."""
    found = all_draws(path, SIZES if "--eight" in options else SIZES[:1])
    text = page(found)
    print(text)
    if "--write" in options:
        (HERE / "calibration-draws.md").write_text(text, encoding="utf-8")
        write_calibrated_row(
            [one.sigma for _, _, size, draws in found if size == min(SIZES) for one in draws]
        )


def write_calibrated_row(sigmas: Sequence[float]) -> None:
    """Write the error that three runs bring a stack to, for the advice of predictions."""
    parts = error_parts()["dense unseen"].scaled_to(float(np.median(sigmas)))
    row = {
        "of": "calibrated",
        **{name: f"{value:.4f}" for name, value in parts.to_json().items()},
        "quantile": f"{parts.quantile:.4f}",
        "runs": str(min(SIZES)),
        "sources": str(parts.sources),
        "origin": "median log-sigma that calibrate expects after so many runs; benchmarks/calibration-draws.md",
    }
    with TABLE.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, list(row), lineterminator="\n")
        writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
