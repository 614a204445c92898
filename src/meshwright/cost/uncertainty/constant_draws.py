"""Joint draws of all fitted constants: how far each may lie from its value, together with the others.

``cost/data/constant_draws.csv`` has a column for each constant and a row for each draw, the logarithm of the drawn over
the fitted value. Constants that the measured runs tell have the spread and the correlations that the fit leaves them;
columns of ``*`` those of a stack or kernel family that no run is of: the width of their prior, and independent.
A constant that the cluster's calibration has is known and not drawn. The refit writes the table
(``calibration/draws.py``).
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.constant_values import ANY, is_known, matters, parts_of_name, value_in
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.setting import Setting

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ConstantDraws:
    """Draws of constants: ``log_factors`` is (draws, constants), the logarithm of drawn over fitted values.

    ``around``: the fitted values, where they are not the present ones.
    """

    names: tuple[str, ...]
    log_factors: Floats
    around: Mapping[str, float] = field(default_factory=dict)

    def concerning(self, setting: Setting, plans: PlanArrays) -> Iterator[tuple[str, Floats]]:
        """Yield each constant that matters to the plans and is not known, with its draws."""
        own = [name for name in self.names if matters(name, setting, plans)]
        fitted = {parts_of_name(name)[2] for name in own if parts_of_name(name)[0] != ANY}
        for name in own:
            owner, _, number = parts_of_name(name)
            stands_in = owner == ANY and number in fitted
            if not stands_in and not is_known(setting, name) and value_in(setting, name) > 0:
                drawn = self.log_factors[:, self.names.index(name)]
                if drawn.any():
                    yield name, drawn


@cache
def constant_draws() -> ConstantDraws:
    """Return the table of the present constants."""
    with (files("meshwright.cost") / "data" / "constant_draws.csv").open(encoding="utf-8") as lines:
        names, *rows = csv.reader(lines)
    return ConstantDraws(tuple(names), np.array(rows, dtype=np.float64))
