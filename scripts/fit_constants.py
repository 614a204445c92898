"""Fit the cost model's constants to a table of measured runs and write them where they live.

    python scripts/fit_constants.py RUNS.csv               prints errors before and after, and the constants
    python scripts/fit_constants.py RUNS.csv --left-out    also errors with each source left out of the fit
    python scripts/fit_constants.py RUNS.csv --write       rewrites constants.csv, kernels.csv and the stacks' files

Takes minutes: some fifty constants, each moved for a numerical derivative.
"""

import csv
import io
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

import numpy as np

from meshwright.calibration.fit import fit
from meshwright.calibration.left_out import Floats, LeftOut, left_out_errors, weighted_quantiles
from meshwright.calibration.observations import Observation
from meshwright.calibration.parameters import parameters_for
from meshwright.calibration.runs import observations_of
from meshwright.validation.rows import Run, read_runs

PACKAGE = Path(__file__).parent.parent / "src" / "meshwright"
COLUMNS = {
    "attention_efficiency.flash": "flash_efficiency",
    "attention_efficiency.flash3": "flash3_efficiency",
}


def show(label: str, source: str, errors: Floats) -> None:
    """One line of a source's errors."""
    ratio = np.exp(errors)
    mape, bias = np.abs(ratio - 1).mean(), np.exp(errors.mean()) - 1
    print(f"{label:10} {source:52} n {len(errors):4} MAPE {mape:6.1%} bias {bias:+6.1%}", flush=True)


def by_source(observations: list[Observation], values: Mapping[str, float]) -> dict[str, Floats]:
    """log errors of every source."""
    found: dict[str, list[float]] = {}
    for observation in observations:
        for source, error in zip(observation.sources, observation.log_errors(values), strict=True):
            found.setdefault(source, []).append(float(error))
    return {source: np.array(errors) for source, errors in sorted(found.items())}


def left_out_page(found: Mapping[str, Floats]) -> str:
    """The page that is kept under ``benchmarks/``."""
    lines = ["| source | runs | MAPE | bias |", "| --- | --: | --: | --: |"]
    for source, errors in found.items():
        ape, bias = np.abs(np.exp(errors) - 1), np.exp(errors.mean()) - 1
        lines.append(f"| {source} | {len(ape)} | {ape.mean():.1%} | {bias:+.1%} |")
    return (
        f"""# Each source left out

Step times of published runs, predicted with constants that were fitted to all the other sources: what a new cluster
and stack would find. Fitted on {date.today().isoformat()} by `python scripts/fit_constants.py RUNS.csv --left-out
--write`, which takes about half an hour. In-sample errors of the same runs are in [accuracy](accuracy.md).

"""
        + "\n".join(lines)
        + "\n"
    )


def write(values: Mapping[str, float]) -> None:
    """Put every value where the cost model reads it."""
    _write_table(PACKAGE / "cost/data/constants.csv", lambda row: values.get(row["name"]), "value")
    for column_of, column in [("gemm_efficiency", "gemm_efficiency"), *COLUMNS.items()]:
        _write_table(
            PACKAGE / "cost/data/kernels.csv",
            lambda row, name=column_of: values.get(f"{row['device']}:{name}"),
            column,
        )
    for name, value in values.items():
        if "/" in name:
            stack, field = name.split("/")
            (path,) = (PACKAGE / "stack/files").glob(f"{stack}-[0-9s v]*.yaml")
            text = path.read_text(encoding="utf-8")
            text, found = re.subn(rf"(?m)^{field}:\s*\S+", f"{field}: {value:.4g}", text)
            path.write_text(text if found else f"{text.rstrip()}\n{field}: {value:.4g}\n", encoding="utf-8")


INTERVAL_COLUMNS = ("models", "low", "high", "runs", "sources", "origin")


def intervals(left: list[LeftOut]) -> Iterator[tuple[str, str, str, int, int, str]]:
    """80 % of measured/predicted of runs whose source was left out, every source with the same weight."""
    for models in ("dense", "experts"):
        chosen = [
            (o, e) for o, e in left if (o.setting.model.architecture.moe is not None) == (models == "experts")
        ]
        sources = [source for o, _ in chosen for source in o.sources]
        ratios = -np.concatenate([errors for _, errors in chosen])
        weights = np.array([1 / sources.count(source) for source in sources])
        low, high = np.exp(weighted_quantiles(ratios, weights, (0.1, 0.9)))
        origin = "quantiles of measured/predicted of published runs; each source left out of the fit"
        yield models, f"{low:.3f}", f"{high:.3f}", len(ratios), len(set(sources)), origin


def _write_table(path: Path, value_of, column: str) -> None:  # type: ignore[no-untyped-def]
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    for row in rows:
        value = value_of(row)
        if value is not None:
            row[column] = f"{value:.4g}"
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")


def main(path: str, options: list[str]) -> None:
    """Fit, print, and write where asked."""
    observations = observations_of([run for run in read_runs(path) if isinstance(run, Run)])
    for source, errors in by_source(observations, {}).items():
        show("now", source, errors)
    parameters = parameters_for(observations)
    fitted = fit(
        observations, parameters, lambda i, value: print(f"  iteration {i}: {value:.1f}", flush=True)
    )
    for source, errors in by_source(observations, fitted.values).items():
        show("fitted", source, errors)
    for p in parameters:
        ratio = fitted.values[p.name] / p.value
        print(
            f"  {p.name:48} {p.value:10.4g} → {fitted.values[p.name]:10.4g} ×{ratio:.2f} ±{fitted.widths[p.name]:.2f}"
        )
    if "--write" in options:
        write(fitted.values)
    if "--left-out" in options:
        by_left: dict[str, Floats] = {}

        def note(source: str, errors: Floats) -> None:
            show("left out", source, errors)
            by_left[source] = errors

        left = left_out_errors(observations, note)
        rows = list(intervals(left))
        print("\n".join(",".join(map(str, row)) for row in rows))
        if "--write" in options:
            path = PACKAGE / "cost/data/intervals.csv"
            text = "\n".join(",".join(map(str, row)) for row in [INTERVAL_COLUMNS, *rows])
            path.write_text(text + "\n", encoding="utf-8")
            (PACKAGE.parents[1] / "benchmarks/left-out.md").write_text(
                left_out_page(by_left), encoding="utf-8"
            )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
