"""The fit: robust least squares on log(predicted/measured), every source with the same weight, priors as parameters.

Minimises Σ_sources N·mean ρ(r/σ) + Σ ((θ − θ₀)/width)², with ρ the Huber function (linear beyond ``HUBER``·σ), N = 30
runs that a source counts for however many it has, σ = 5 %: what the same configuration differs by between releases
and machines. Gauss–Newton with numerical derivatives, which cost most of the time: steps are taken with the same ones
as long as they improve. A step that does not is halved. The fit ends where a step with new derivatives improves little.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.calibration.observations import Target
from meshwright.calibration.parameters import Parameter

Floats = NDArray[np.float64]

NOISE = 0.05
RUNS_OF_A_SOURCE = 30.0
HUBER = 2.0
DIFFERENCE = 0.02
ITERATIONS = 12
ENOUGH = 1e-3


@dataclass(frozen=True)
class Fitted:
    """Values of the parameters, what the objective was before and after, and the posterior width of each."""

    values: Mapping[str, float]
    before: float
    after: float
    widths: Mapping[str, float]


def fit(
    observations: Sequence[Target],
    parameters: Sequence[Parameter],
    progress: Callable[[int, float], None] | None = None,
    runs_of_a_source: float | None = RUNS_OF_A_SOURCE,
) -> Fitted:
    """Fit the parameters to the observations; with None for ``runs_of_a_source`` every run counts once."""
    problem = _Problem(observations, parameters, runs_of_a_source)
    theta = problem.start
    errors = [o.log_errors(problem.values(theta)) for o in observations]
    value = before = problem.objective(errors, theta)
    hessian = np.diag(1 / problem.widths**2)
    for iteration in range(ITERATIONS):
        jacobian, last = problem.jacobian(theta, errors), value
        better = True
        while better:
            step, hessian = problem.step(jacobian, errors, theta)
            theta, errors, new = problem.improve(theta, step, errors, value)
            better, value = value - new > ENOUGH * value, new
        if progress:
            progress(iteration, value)
        if last - value <= ENOUGH * last:
            break
    widths = np.sqrt(np.diag(np.linalg.inv(hessian)))
    names = [p.name for p in parameters]
    return Fitted(problem.values(theta), before, value, dict(zip(names, widths.tolist(), strict=True)))


class _Problem:
    """The objective and its derivatives."""

    def __init__(
        self,
        observations: Sequence[Target],
        parameters: Sequence[Parameter],
        runs_of_a_source: float | None,
    ) -> None:
        self.observations, self.parameters = observations, parameters
        self.start = np.array([p.start for p in parameters])
        self.centre = np.array([p.centre for p in parameters])
        self.widths = np.array([p.prior.width for p in parameters])
        sources = [source for o in observations for source in o.sources]
        counts = {source: sources.count(source) for source in set(sources)}
        weight = {s: 1.0 if runs_of_a_source is None else runs_of_a_source / n for s, n in counts.items()}
        self.weights = [np.array([weight[s] for s in o.sources]) for o in observations]

    def values(self, theta: Floats) -> dict[str, float]:
        return {p.name: float(np.exp(t)) for p, t in zip(self.parameters, theta, strict=True)}

    def objective(self, errors: list[Floats], theta: Floats) -> float:
        prior = float((((theta - self.centre) / self.widths) ** 2).sum())
        return prior + sum(
            float((w * _huber(e / NOISE)).sum()) for w, e in zip(self.weights, errors, strict=True)
        )

    def jacobian(self, theta: Floats, errors: list[Floats]) -> list[Floats]:
        """d log-error / d θ of every observation: (runs, parameters)."""
        columns = [np.zeros((len(e), len(theta))) for e in errors]
        for j, parameter in enumerate(self.parameters):
            moved = theta.copy()
            moved[j] += DIFFERENCE
            values = self.values(moved)
            for i, observation in enumerate(self.observations):
                if parameter.concerns(observation):
                    columns[i][:, j] = (observation.log_errors(values) - errors[i]) / DIFFERENCE
        return columns

    def step(self, jacobian: list[Floats], errors: list[Floats], theta: Floats) -> tuple[Floats, Floats]:
        gradient = (theta - self.centre) / self.widths**2
        hessian = np.diag(1 / self.widths**2)
        for rows, error, weight in zip(jacobian, errors, self.weights, strict=True):
            scaled = error / NOISE
            robust = weight * np.minimum(1.0, HUBER / np.maximum(np.abs(scaled), 1e-12)) / NOISE**2
            gradient = gradient + rows.T @ (robust * error)
            hessian = hessian + (rows * robust[:, None]).T @ rows
        return -np.linalg.solve(hessian, gradient), hessian

    def improve(
        self, theta: Floats, step: Floats, errors: list[Floats], value: float
    ) -> tuple[Floats, list[Floats], float]:
        for _ in range(5):
            moved = theta + step
            new_errors = [o.log_errors(self.values(moved)) for o in self.observations]
            new = self.objective(new_errors, moved)
            if new < value:
                return moved, new_errors, new
            step = step / 2
        return theta, errors, value


def _huber(x: Floats) -> Floats:
    """x² near zero, linear beyond ``HUBER``."""
    size = np.abs(x)
    return np.where(size <= HUBER, x**2, 2 * HUBER * size - HUBER**2)
