"""The toy of DES-LOC (arXiv 2505.22549): Adam on Rosenbrock's function, 256 workers with noisy gradients.

Noise of 1.5, periods of 192, 192 and 692 steps are the paper's. The learning rate, β, the start and the number of steps
are assumed. Moments are averaged, stay local, or are reset when parameters are averaged.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

WORKERS, NOISE, PERIODS = 256, 1.5, (192, 192, 692)
RATE, BETAS, EPSILON, STEPS, START = 0.01, (0.9, 0.999), 1e-8, 12_000, (-1.0, 1.5)
MODES = ("averaged", "local", "reset")
LAST = 4_000
Floats = NDArray[np.float64]


def final_losses(seed: int = 0) -> Mapping[str, float]:
    """Return the mean loss of the workers' mean parameters over the last steps, by what happens to moments."""
    return {mode: float(np.mean(_losses(mode, seed)[-LAST:])) for mode in MODES}


def _losses(mode: str, seed: int) -> list[float]:
    draw, (beta1, beta2) = np.random.default_rng(seed), BETAS
    x = np.tile(np.array(START), (WORKERS, 1))
    first, second = np.zeros_like(x), np.zeros_like(x)
    found = []
    for step in range(1, STEPS + 1):
        gradient = _gradient(x) + NOISE * draw.standard_normal(x.shape)
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient**2
        root = np.sqrt(second / (1 - beta2**step)) + EPSILON
        x = x - RATE * first / (1 - beta1**step) / root
        due = [step % period == 0 for period in PERIODS]
        if due[0]:
            x = _averaged(x)
        if mode == "averaged":
            first, second = (
                _averaged(of) if now else of for of, now in zip((first, second), due[1:], strict=True)
            )
        elif mode == "reset" and due[0]:
            first, second = np.zeros_like(x), np.zeros_like(x)
        found.append(_value(x.mean(0)))
    return found


def _averaged(values: Floats) -> Floats:
    return np.broadcast_to(values.mean(0), values.shape).copy()


def _gradient(x: Floats) -> Floats:
    a, b = x[:, 0], x[:, 1]
    return np.stack([-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)], 1)


def _value(x: Floats) -> float:
    return float((1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2)
