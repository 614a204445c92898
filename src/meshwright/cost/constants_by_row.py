"""Constants with one value for each row of an array of plans.

The closed forms are arithmetic on arrays. A constant may therefore be an array too, with a value for each row. That
costs little more than pricing the plans once, because most of the time of a short array goes into its fixed costs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.constant_values import with_values
from meshwright.plans.setting import Setting

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ConstantCases:
    """``values[name]`` has the value of a constant in each case, (cases,); row i of the plans is in case ``of[i]``."""

    values: Mapping[str, Floats]
    of: Ints

    def take(self, rows: Ints) -> "ConstantCases":
        """Return the cases of some rows."""
        return ConstantCases(self.values, self.of[rows])

    def setting(self, setting: Setting, axes: int = 1) -> Setting:
        """Return the setting with a value per row for each constant, for arrays of ``axes`` axes, rows first."""
        shape = (-1,) + (1,) * (axes - 1)
        return with_values(
            setting, {name: value[self.of].reshape(shape) for name, value in self.values.items()}
        )


def changed_one_by_one(base: Mapping[str, float], changes: Sequence[tuple[str, float]]) -> dict[str, Floats]:
    """Return the values of constants in one case for each change of one of them; the others stay at ``base``."""
    values = {name: np.full(len(changes), base[name]) for name, _ in changes}
    for case, (name, value) in enumerate(changes):
        values[name][case] = value
    return values
