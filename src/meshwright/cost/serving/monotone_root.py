"""Root of an increasing function over arrays, by false position in logarithms (Illinois).

For y(x) that grows with x, the x of (0, upper] with y(x) = target; ``upper`` where y stays below the target. In
logarithms a power law is a line, which one step of false position solves; the end that stays twice in turn counts half
(Dowell and Jarratt, A modified regula falsi method, 1971).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.program.local_shape import Number

LEAST = 1e-6
"""The lower end of the search."""
STEPS = 60
PRECISION = 1e-9


def increasing_root(
    function: Callable[[NDArray[Any]], NDArray[Any]],
    target: NDArray[Any],
    upper: NDArray[Any],
    lower: Number = LEAST,
) -> NDArray[Any]:
    """Return x with function(x) = target, at most ``upper``, and ``lower`` where already that is too much."""
    high = np.maximum(np.asarray(upper, float), lower)
    low = np.maximum(np.zeros_like(high), lower)
    aim = np.log(target)
    over, under = np.log(function(high)) - aim, np.log(function(low)) - aim
    beyond = over <= 0
    found, largest = np.where(under >= 0, low, high), high
    settled = beyond | (under >= 0)
    a, b = np.log(low), np.log(high)
    for _ in range(STEPS):
        if settled.all():
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            middle = b - over * (b - a) / (over - under)
        middle = np.where(np.isfinite(middle), np.clip(middle, a, b), (a + b) / 2)
        value = np.log(function(np.exp(middle))) - aim
        found = np.where(settled, found, np.exp(middle))
        settled = settled | (np.abs(value) < PRECISION) | (b - a < PRECISION)
        above = value > 0
        over, under = np.where(above, value, over / 2), np.where(above, under / 2, value)
        b, a = np.where(above, middle, b), np.where(above, a, middle)
    return np.where(beyond, largest, found)
