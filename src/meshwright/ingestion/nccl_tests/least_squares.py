"""Least squares on the logarithm of times: Levenberg–Marquardt in the logarithms of positive constants.

min Σ ρ(log(t(θ)/t)) with ρ the Huber function, quadratic up to ``OUTLIER`` and linear beyond, because single sizes of
a sweep are often disturbed. A constant that changes no time by more than ``UNSEEN`` is not identified: it keeps its
present value, and the others are solved for again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

OUTLIER = 0.3
UNSEEN = 0.1
DIFFERENCE = 1e-4
ITERATIONS = 100
ENOUGH = 1e-10
STUCK = 1e9


@dataclass(frozen=True, slots=True)
class Unknown:
    """A positive constant: its present value, the start of the search, and its bounds."""

    present: float
    start: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Solution:
    """Values of all constants, the names that the measurements identify, and the relative error of every time."""

    values: Mapping[str, float]
    identified: frozenset[str]
    errors: Floats


def solve(
    unknowns: Mapping[str, Unknown], seconds: Callable[[Mapping[str, float]], Floats], measured: Floats
) -> Solution:
    """Return the constants with which ``seconds`` is closest to the measured times."""
    left = dict(unknowns)
    while True:
        kept = {name: unknown.present for name, unknown in unknowns.items() if name not in left}
        problem = _Problem(left, kept, seconds, measured)
        theta = problem.solved()
        unseen = problem.unseen(theta)
        if not unseen:
            return Solution(problem.values(theta), frozenset(left), np.expm1(problem.errors(theta)))
        left = {name: unknown for name, unknown in left.items() if name not in unseen}


class _Problem:
    """Some unknowns, with the others fixed, as a function of logarithms."""

    def __init__(
        self,
        unknowns: Mapping[str, Unknown],
        kept: Mapping[str, float],
        seconds: Callable[[Mapping[str, float]], Floats],
        measured: Floats,
    ) -> None:
        self.unknowns, self.kept, self.seconds, self.measured = unknowns, kept, seconds, measured
        self.low, self.high, self.start, self.present = (
            np.array([log(getattr(unknown, side)) for unknown in unknowns.values()], np.float64)
            for side in ("low", "high", "start", "present")
        )

    def values(self, theta: Floats) -> dict[str, float]:
        return {**self.kept, **dict(zip(self.unknowns, np.exp(theta).tolist(), strict=True))}

    def errors(self, theta: Floats) -> Floats:
        return np.log(self.seconds(self.values(theta)) / self.measured)

    def solved(self) -> Floats:
        """Return the logarithms of the best values over several starts: saturation and plateau create local minima."""
        middle = (self.low + self.high) / 2
        starts = [
            self.start,
            *(np.where(own, middle, self.start) for own in np.eye(len(self.start), dtype=bool)),
        ]
        return min(map(self.descend, starts), key=lambda theta: _loss(self.errors(theta)))

    def descend(self, start: Floats) -> Floats:
        """Return the logarithms of the best values near a start."""
        theta = np.clip(start, self.low, self.high)
        errors, damping = self.errors(theta), 1e-3
        for _ in range(ITERATIONS if len(theta) else 0):
            moved = np.clip(theta + self.step(theta, errors, damping), self.low, self.high)
            new = self.errors(moved)
            gain = _loss(errors) - _loss(new)
            if gain > 0:
                theta, errors, damping = moved, new, damping / 3
            else:
                damping *= 4
            if 0 < gain < ENOUGH * _loss(errors) or damping > STUCK:
                break
        return theta

    def step(self, theta: Floats, errors: Floats, damping: float) -> Floats:
        """Return a damped Gauss–Newton step; disturbed times have less weight."""
        jacobian = self.jacobian(theta, errors)
        weight = np.minimum(1.0, OUTLIER / np.maximum(np.abs(errors), 1e-12))
        normal = (jacobian * weight[:, None]).T @ jacobian
        damped = normal + damping * np.diag(np.diag(normal) + 1e-9)
        return np.asarray(np.linalg.solve(damped, -jacobian.T @ (weight * errors)), np.float64)

    def jacobian(self, theta: Floats, errors: Floats) -> Floats:
        """Return the derivatives by each logarithm: (times, constants)."""
        moves = DIFFERENCE * np.eye(len(theta))
        return np.stack([(self.errors(theta + move) - errors) / DIFFERENCE for move in moves], axis=1)

    def unseen(self, theta: Floats) -> set[str]:
        """Return the constants that no time depends on, neither at their value nor on the way from the present one."""
        errors = self.errors(theta)
        found = set()
        for at, name in enumerate(self.unknowns):
            back, aside = theta.copy(), theta.copy()
            back[at], aside[at] = self.present[at], theta[at] - DIFFERENCE
            slope = np.abs(self.errors(aside) - errors).max() / DIFFERENCE
            if slope < UNSEEN and np.abs(self.errors(back) - errors).max() < UNSEEN:
                found.add(name)
        return found


def _loss(errors: Floats) -> float:
    size = np.abs(errors)
    return float(np.where(size <= OUTLIER, size**2, 2 * OUTLIER * size - OUTLIER**2).sum())
