"""Fit the constants without each source of runs, and without each of five folds of every source's groups.

    python scripts/fit_left_out.py RUNS.csv --write

Writes the constants of every fit to ``benchmarks/left-out-constants.csv``, and what each fit leaves open to
``left-out-factors.csv``; from both ``write_error_parts.py`` tells how far predictions are off. Begins at the present
constants: ``fit_constants.py`` comes first.
"""

import sys
from collections.abc import Sequence

import numpy as np
from fit_constants import show
from left_out_fits import LEFT_OUT, LeftOut, left_out_fits
from pass_profiles import profiles_of, read_notes

from meshwright.calibration.usable_runs import usable_runs
from meshwright.validation.read_run_table import Run, read_runs


def main(path: str, options: Sequence[str]) -> None:
    """Fit, print the errors of what was left out, and write the constants where asked."""
    runs = [run for run in read_runs(path) if isinstance(run, Run)]
    profiles = profiles_of(runs, read_notes(path))
    left = left_out_fits(usable_runs(runs).observations, _show, profiles)
    if "--write" in options:
        LEFT_OUT.write({one.name: one.constants for one in left})


def _show(left: LeftOut) -> None:
    show("left out", left.name, np.concatenate(left.errors))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
