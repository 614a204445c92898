"""Root of an increasing function over arrays, by inverse quadratic interpolation in logarithms (Chandrupatla).

For y(x) that grows with x, the x of (0, upper] with y(x) = target; ``upper`` where y stays below the target. In
logarithms a power law is a line, which the first step, of false position, solves. Further steps interpolate where that
is safe, and halve the interval elsewhere (Chandrupatla, A new hybrid quadratic/bisection algorithm, 1997).
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
LEAST_SHARE = 1e-6
"""Part of the interval that a step leaves at either end."""


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
    a, b = np.log(high), np.log(low)
    of_a, of_b = np.log(function(high)) - aim, np.log(function(low)) - aim
    beyond, below = of_a <= 0, of_b >= 0
    found = np.where(beyond, high, low)
    settled = beyond | below
    with np.errstate(divide="ignore", invalid="ignore"):
        share = of_a / (of_a - of_b)
        for _ in range(STEPS):
            if settled.all():
                break
            step = np.where(np.isfinite(share), share, 0.5) * (b - a)
            middle = np.where(settled, a, a + step)
            value = np.log(function(np.exp(middle))) - aim
            found = np.where(settled, found, np.exp(middle))
            settled = settled | (np.abs(value) < PRECISION) | (np.abs(b - a) < PRECISION)
            stays = (value > 0) == (of_a > 0)
            c, of_c = np.where(stays, a, b), np.where(stays, of_a, of_b)
            b, of_b = np.where(stays, b, a), np.where(stays, of_b, of_a)
            a, of_a = middle, value
            share = _next_share((a, b, c), (of_a, of_b, of_c))
    return found


def _next_share(places: tuple[Any, Any, Any], values: tuple[Any, Any, Any]) -> NDArray[Any]:
    """Return where in the interval from a to b to look next: by a parabola through three points where it is safe."""
    (a, b, c), (of_a, of_b, of_c) = places, values
    xi, phi = (a - b) / (c - b), (of_a - of_b) / (of_c - of_b)
    safe = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
    parabola = of_a / (of_b - of_a) * of_c / (of_b - of_c)
    parabola = parabola + (c - a) / (b - a) * of_a / (of_c - of_a) * of_b / (of_c - of_b)
    return np.clip(np.where(safe, parabola, 0.5), LEAST_SHARE, 1 - LEAST_SHARE)
