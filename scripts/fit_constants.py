"""Fit the cost model's constants to a table of measured runs and write them where they live.

    python scripts/fit_constants.py RUNS.csv               prints errors before and after, and the constants
    python scripts/fit_constants.py RUNS.csv --write       rewrites constants.csv, kernels.csv and the stacks' files

Takes minutes: some fifty constants, each moved for a numerical derivative.
"""

import csv
import io
import re
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import numpy as np
from left_out_fits import Floats, parameters_for
from pass_profiles import PassProfile, profiles_of, read_notes

from meshwright.calibration.draws import seeded_draws, write_draws
from meshwright.calibration.fit import fit
from meshwright.calibration.fitted_parameters import priors
from meshwright.calibration.observations import Observation
from meshwright.calibration.usable_runs import usable_runs
from meshwright.validation.read_run_table import Run, read_runs

PACKAGE = Path(__file__).parent.parent / "src" / "meshwright"
SAME_CHIP = {"h200": "h100"}
"""Families whose efficiencies are those of another one, which has runs."""
COLUMNS = {
    "attention_efficiency.flash": "flash_efficiency",
    "attention_efficiency.flash3": "flash3_efficiency",
}


def show(label: str, source: str, errors: Floats) -> None:
    """One line of a source's errors."""
    ratio = np.exp(errors)
    mape, bias = np.abs(ratio - 1).mean(), np.exp(errors.mean()) - 1
    print(f"{label:10} {source:52} n {len(errors):4} MAPE {mape:6.1%} bias {bias:+6.1%}", flush=True)


def show_passes(label: str, profiles: list[PassProfile], values: Mapping[str, float]) -> None:
    """One line for each pass that was timed by itself."""
    errors = np.array([profile.log_errors(values) for profile in profiles]).reshape(-1, 3)
    for name, of_pass in zip(("forward", "input gradient", "weight gradient"), errors.T, strict=True):
        show(label, f"profiled: {name}", of_pass)


def by_source(observations: list[Observation], values: Mapping[str, float]) -> dict[str, Floats]:
    """log errors of every source."""
    found: dict[str, list[float]] = {}
    for observation in observations:
        for source, error in zip(observation.sources, observation.log_errors(values), strict=True):
            found.setdefault(source, []).append(float(error))
    return {source: np.array(errors) for source, errors in sorted(found.items())}


def write(values: Mapping[str, float]) -> None:
    """Put every value where the cost model reads it."""
    table = PACKAGE / "cost/data/constants.csv"
    _write_table(table, lambda row: values.get(row["name"]), "value")
    _write_table(table, lambda row: _fitted_origin(row["name"]) if row["name"] in values else None, "origin")
    for column_of, column in [("gemm_efficiency", "gemm_efficiency"), *COLUMNS.items()]:
        _write_table(
            PACKAGE / "cost/data/kernels.csv",
            lambda row, name=column_of: values.get(f"{SAME_CHIP.get(row['device'], row['device'])}:{name}"),
            column,
        )
    for name, value in values.items():
        if "/" in name:
            stack, field = name.split("/")
            (path, text) = _written_out(stack)
            text, found = re.subn(rf"(?m)^{field}:\s*\S+", f"{field}: {value:.4g}", text)
            path.write_text(text if found else f"{text.rstrip()}\n{field}: {value:.4g}\n", encoding="utf-8")


def _written_out(stack: str) -> tuple[Path, str]:
    """The file of a stack's release that does not refer to another one, and its text."""
    paths = (PACKAGE / "stack/files").glob(f"{stack}-[0-9s v]*.yaml")
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    ((path, text),) = ((path, text) for path, text in texts.items() if "\nlike:" not in text)
    return path, text


def _fitted_origin(name: str) -> str:
    prior = priors()[name]
    fitted = f"fitted to published training runs by scripts/fit_constants.py ({date.today().isoformat()})"
    return f"{fitted}; prior: {prior.value:g}, {prior.origin}"


def _write_table(path: Path, value_of, column: str) -> None:  # type: ignore[no-untyped-def]
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    for row in rows:
        value = value_of(row)
        if value is not None:
            row[column] = value if isinstance(value, str) else f"{value:.4g}"
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")


def main(path: str, options: list[str]) -> None:
    """Fit, print, and write where asked."""
    runs = [run for run in read_runs(path) if isinstance(run, Run)]
    observations = usable_runs(runs).observations
    for source, errors in by_source(observations, {}).items():
        show("now", source, errors)
    profiles = profiles_of(runs, read_notes(path))
    parameters = parameters_for(observations)
    show_passes("now", profiles, {})
    fitted = fit(
        [*observations, *profiles],
        parameters,
        lambda i, value: print(f"  iteration {i}: {value:.1f}", flush=True),
    )
    for source, errors in by_source(observations, fitted.values).items():
        show("fitted", source, errors)
    show_passes("fitted", profiles, fitted.values)
    for p in parameters:
        ratio = fitted.values[p.name] / p.value
        print(
            f"  {p.name:48} {p.value:10.4g} → {fitted.values[p.name]:10.4g} ×{ratio:.2f} ±{fitted.widths[p.name]:.2f}"
        )
    if "--write" in options:
        write(fitted.values)
        draws = seeded_draws(fitted.values, np.linalg.cholesky(fitted.covariance), priors())
        write_draws(draws, PACKAGE / "cost/data/constant_draws.csv")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
