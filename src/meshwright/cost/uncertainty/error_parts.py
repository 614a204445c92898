"""The parts of a step time's error: of the stack, of the group of runs, of the single run.

log(measured/predicted) = a part that all runs of a stack share + a part that all runs of a group share (one model on
one number of one kind of device) + a part of the run. ``cost/data/error_parts.csv`` holds their standard deviations for
dense models and for models with experts. ``unseen``: whole sources were left out of the fit. ``seen``: one of five
folds of every source's groups was. ``scripts/error_parts.py`` says how they are estimated.

Beside them stands what the doubt about the constants does to the plan at hand (``constants_error.py``): the parts are
what left-out errors had beyond it.

``pair`` rows hold the part of the ratio of two plans' times in one setting, where the stack's and the group's cancel;
``calibrated``, in ``calibrated_error.csv``, what is usual after a calibration on three runs.
"""

import csv
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import hypot

from meshwright.cost.uncertainty.interval import QUANTILE, Interval

NONE = Interval(1.0, 1.0)


@dataclass(frozen=True, slots=True)
class ErrorParts:
    """Standard deviations of the logarithm of measured/predicted, and the quantile that makes 80 % of them.

    ``quantile`` is Student's where few sources tell the parts, else the normal distribution's. ``constants`` is the
    interval that the doubt about the constants alone gives the plan at hand.
    """

    stack: float
    group: float
    run: float
    quantile: float = QUANTILE
    runs: int = 0
    sources: int = 0
    constants: Interval = NONE

    @property
    def sigma(self) -> float:
        """Standard deviation of the error beyond that of the constants."""
        return hypot(self.stack, self.group, self.run)

    @property
    def interval(self) -> Interval:
        """The 80 % interval of the whole error."""
        return Interval.around(self.sigma, self.quantile).combined(self.constants)

    def with_further_group_error(self, sigma: float) -> "ErrorParts":
        """Return the parts with another, independent error of the group."""
        return replace(self, group=hypot(self.group, sigma))

    def scaled_to(self, sigma: float) -> "ErrorParts":
        """Return the parts with the stack's known: the others share ``sigma`` as they do now."""
        share = sigma / hypot(self.group, self.run)
        return replace(self, stack=0.0, group=share * self.group, run=share * self.run, quantile=QUANTILE)

    def to_json(self) -> dict[str, float]:
        """Return the parts."""
        return {"stack": self.stack, "group": self.group, "run": self.run, "constants": self.constants.sigma}


@cache
def error_parts() -> dict[str, ErrorParts]:
    """Return the parts by name: ``dense seen``, ``experts unseen``, ``pair seen`` …; ``calibrated``."""
    found: dict[str, ErrorParts] = {}
    for table in ("error_parts.csv", "calibrated_error.csv"):
        with (files("meshwright.cost") / "data" / table).open(encoding="utf-8") as lines:
            found |= {row["of"]: _parts(row) for row in csv.DictReader(lines)}
    return found


def _parts(row: dict[str, str]) -> ErrorParts:
    stack, group, run, quantile = (float(row[name]) for name in ("stack", "group", "run", "quantile"))
    return ErrorParts(stack, group, run, quantile, int(row["runs"]), int(row["sources"]))
