"""Fit parameters by robust least squares on log(predicted/measured), with equal weight per source and priors.

Minimises Σ_sources N·mean ρ(r/σ) + Σ ((θ − θ₀)/width)², with ρ the Huber function (linear beyond ``HUBER``·σ), N = 30
runs that a source counts for however many it has, σ = 5 %: the difference of one configuration between releases
and machines. Gauss–Newton with numerical derivatives, which cost most of the time: as long as steps improve, those of
the last step are corrected by the change it made (Broyden, Math. Comp. 19, 1965) instead of recomputed. A step that
does not improve is halved. The fit ends when steps with new derivatives improve little.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from meshwright.calibration.fitted_parameters import Parameter
from meshwright.calibration.observations import Target

Floats = NDArray[np.float64]

NOISE = 0.05
RUNS_OF_A_SOURCE = 30.0
HUBER = 2.0
DIFFERENCE = 0.02
ITERATIONS = 12
ENOUGH = 1e-3


@dataclass(frozen=True)
class Fitted:
    """Values of the parameters, the objective before and after.

    ``covariance`` is that of the parameters' logarithms, in their order: (parameters, parameters).
    """

    values: Mapping[str, float]
    before: float
    after: float
    covariance: Floats = field(compare=False)

    @property
    def widths(self) -> Mapping[str, float]:
        """Return the standard deviation of each parameter's logarithm."""
        return dict(zip(self.values, np.sqrt(np.diag(self.covariance)).tolist(), strict=True))


def fit(
    observations: Sequence[Target],
    parameters: Sequence[Parameter],
    progress: Callable[[int, float], None] | None = None,
    runs_of_a_source: float | None = RUNS_OF_A_SOURCE,
    begun: "FitStarts | None" = None,
    iterations: int = ITERATIONS,
) -> Fitted:
    """Fit the parameters to the observations; with None for ``runs_of_a_source`` every run counts once.

    ``begun``: errors and derivatives of each observation at the start of the fit, if already known. ``iterations``: how
    often derivatives are computed at most.
    """
    problem = _Problem(observations, parameters, runs_of_a_source)
    theta = problem.start
    evaluations = begun or problem.begin()
    errors, jacobian = ([getattr(one, name) for one in evaluations] for name in ("errors", "derivatives"))
    value = before = problem.objective(errors, theta)
    hessian = np.diag(1 / problem.widths**2)
    for iteration in range(iterations):
        last, better = value, True
        if iteration:
            jacobian = problem.jacobian(theta, errors)
        while better:
            step, hessian = problem.step(jacobian, errors, theta)
            moved, found, new = problem.improve(theta, step, errors, value)
            jacobian = list(_corrected(jacobian, errors, found, moved - theta))
            better, theta, errors, value = value - new > ENOUGH * value, moved, found, new
        if progress:
            progress(iteration, value)
        if last - value <= ENOUGH * last:
            break
    covariance = np.asarray(np.linalg.inv(hessian), dtype=np.float64)
    return Fitted(problem.values(theta), before, value, covariance)


@dataclass(frozen=True)
class FitStart:
    """Log-errors of an observation at the start of a fit, and their derivatives: (runs,), (runs, parameters)."""

    errors: Floats
    derivatives: Floats


FitStarts = Sequence[FitStart]


def fit_start(observations: Sequence[Target], parameters: Sequence[Parameter]) -> list[FitStart]:
    """Return the start of fits of these parameters to any of the observations."""
    return _Problem(observations, parameters, None).begin()


def _corrected(
    jacobian: list[Floats], errors: list[Floats], found: list[Floats], step: Floats
) -> Iterable[Floats]:
    """Yield derivatives corrected to reproduce the change of the last step."""
    length = float(step @ step)
    for rows, old, new in zip(jacobian, errors, found, strict=True):
        yield rows + np.outer(new - old - rows @ step, step) / length if length else rows


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

    def begin(self) -> list[FitStart]:
        """Return errors and derivatives at the start."""
        values = self.values(self.start)
        errors = [o.log_errors(values) for o in self.observations]
        jacobian = self.jacobian(self.start, errors)
        return [FitStart(*of_one) for of_one in zip(errors, jacobian, strict=True)]

    def objective(self, errors: list[Floats], theta: Floats) -> float:
        prior = float((((theta - self.centre) / self.widths) ** 2).sum())
        return prior + sum(
            float((w * _huber(e / NOISE)).sum()) for w, e in zip(self.weights, errors, strict=True)
        )

    def jacobian(self, theta: Floats, errors: list[Floats]) -> list[Floats]:
        """Return d log-error / d θ of every observation: (runs, parameters)."""
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
    """Return x² near zero, linear beyond ``HUBER``."""
    size = np.abs(x)
    return np.where(size <= HUBER, x**2, 2 * HUBER * size - HUBER**2)
