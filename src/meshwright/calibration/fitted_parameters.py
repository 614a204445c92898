"""Fitted parameters: their priors, and how far the data may move them.

Every parameter is positive and fitted in its logarithm with a normal prior: ``priors.csv`` has its centre, its width
and its origin: kernels and links that were measured separately, published figures, or counting. Four of
them already use some published runs, and their origins say so: messages inside a node (profiled with Zero Bubble's
runs), sharded communication (earlier fits), host time (a bound seen in runs) and that of experts (rows of one source).
Widths are narrow if something was measured and wide if only whole runs depend on the constant (host time, element-wise
factors). A parameter belongs to everything, to one kernel family (``a100:…``) or to one stack (``*/…`` in the table:
the same prior for all stacks).
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import log
from typing import NamedTuple

from meshwright.calibration.observations import Target
from meshwright.cost.constant_values import matters


class Prior(NamedTuple):
    """Centre of a prior, its width in the logarithm, and its origin."""

    value: float
    width: float
    origin: str = ""


@cache
def priors() -> dict[str, Prior]:
    """Return the table of priors."""
    with (files("meshwright.calibration") / "priors.csv").open(encoding="utf-8") as lines:
        return {
            r["name"]: Prior(float(r["value"]), float(r["width"]), r["origin"]) for r in csv.DictReader(lines)
        }


@dataclass(frozen=True, slots=True)
class Parameter:
    """A fitted constant: its present value, where a fit begins, and its prior."""

    name: str
    value: float
    prior: Prior

    @property
    def start(self) -> float:
        """Logarithm of the present value."""
        return log(self.value)

    @property
    def centre(self) -> float:
        """Logarithm of the prior's centre."""
        return log(self.prior.value)

    def concerns(self, observation: Target) -> bool:
        """Return whether the parameter can change the prediction of an observation."""
        return matters(self.name, observation.setting, observation.plans)
