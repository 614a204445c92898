"""Fit without some of the runs and predict them: whole sources, and folds of every source's groups.

A left-out source tells the error on a new cluster and stack; a fold tells that of new models or scales on a stack whose
runs are known.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.calibration.fit import FitStarts, fit, fit_start
from meshwright.calibration.fitted_constants import FitTables, FittedConstants
from meshwright.calibration.fitted_parameters import Parameter, priors
from meshwright.calibration.observations import Observation, Target
from meshwright.cost.constant_values import kernel_family
from meshwright.cost.constants import constants, kernels

Floats = NDArray[np.float64]

ANY_STACK = "*"


FOLDS = 5
MOST_RUNS = 150
FOLD = "fold"
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
LEFT_OUT = FitTables(BENCHMARKS / "left-out-constants.csv", BENCHMARKS / "left-out-factors.csv")


@dataclass(frozen=True)
class LeftOut:
    """Observations that were left out of a fit, what the fit found, and log(predicted/measured) of their runs.

    ``name`` is that of a source that was left out as a whole, or of a fold of every source's groups.
    """

    name: str
    constants: FittedConstants
    observations: tuple[Observation, ...]
    errors: tuple[Floats, ...]


def source_of(observation: Target) -> str:
    """Return the source of an observation, the first one of several."""
    return observation.sources[0]


def group_of(observation: Observation) -> tuple[str, str, str, int]:
    """Return what runs of a group share: source, model, device and number of devices."""
    pool = observation.setting.cluster.pool
    return source_of(observation), observation.setting.model.name, pool.device.id, pool.count


def folds(observations: Sequence[Observation]) -> list[frozenset[tuple[str, str, str, int]]]:
    """Deal the groups of every source out to five folds, in a seeded random order."""
    rng = np.random.default_rng(0)
    dealt: list[set[tuple[str, str, str, int]]] = [set() for _ in range(FOLDS)]
    groups = sorted({group_of(o) for o in observations})
    for source in sorted({group[0] for group in groups}):
        own = [group for group in groups if group[0] == source]
        for place, index in enumerate(rng.permutation(len(own)).tolist()):
            dealt[place % FOLDS].add(own[index])
    return [frozenset(one) for one in dealt]


def left_out_fits(
    observations: Sequence[Observation],
    progress: Callable[[LeftOut], None] | None = None,
    further: Sequence[Target] = (),
) -> list[LeftOut]:
    """Leave out every source, then every fold, and predict it under constants fitted without it; a process per fit.

    Targets ``further`` the observations are fitted too, unless they are of a source that is left out. All fits begin
    at the present constants with the same derivatives, which later steps correct and no fit computes anew. A parameter
    that only left-out runs depend on returns to its prior in the first step. Of a source with many runs as many
    settings are fitted as have ``MOST_RUNS`` of them; every source weighs the same anyway.
    """
    parameters = parameters_for(observations)
    fitted = [*some_of_each(observations), *further]
    begun = fit_start(fitted, parameters)
    found: list[LeftOut] = []
    with ProcessPoolExecutor() as processes:
        for left in processes.map(
            partial(without, observations, fitted, parameters, begun), names_of(observations)
        ):
            found.append(left)
            if progress:
                progress(left)
    return found


def names_of(observations: Sequence[Observation]) -> list[str]:
    """Return the names of everything that is left out in turn: sources, then folds."""
    return [
        *sorted({source for o in observations for source in o.sources}),
        *(f"{FOLD} {n + 1}" for n in range(FOLDS)),
    ]


def is_of(name: str, observations: Sequence[Observation]) -> Callable[[Target], bool]:
    """Return the test that an observation is left out under a name."""
    if not name.startswith(f"{FOLD} "):
        return lambda one: name in one.sources
    held = folds(observations)[int(name.split()[1]) - 1]
    return lambda one: isinstance(one, Observation) and group_of(one) in held


def left_out_under(name: str, constants: FittedConstants, observations: Sequence[Observation]) -> LeftOut:
    """Predict what is left out under a name with the constants that were fitted without it."""
    is_left_out = is_of(name, observations)
    own = tuple(o for o in observations if is_left_out(o))
    return LeftOut(name, constants, own, tuple(o.log_errors(constants.values) for o in own))


def without(
    observations: Sequence[Observation],
    fitted: Sequence[Target],
    parameters: Sequence[Parameter],
    begun: FitStarts,
    name: str,
) -> LeftOut:
    """Fit all but what is left out under a name, and predict that."""
    is_left_out = is_of(name, observations)
    others = [(o, first) for o, first in zip(fitted, begun, strict=True) if not is_left_out(o)]
    starts = [first for _, first in others]
    found = fit([o for o, _ in others], parameters, begun=starts, iterations=1)
    return left_out_under(
        name, FittedConstants(found.values, np.linalg.cholesky(found.covariance)), observations
    )


def some_of_each(observations: Sequence[Observation]) -> list[Observation]:
    """Return observations in a seeded random order, as many of each source as have ``MOST_RUNS`` runs."""
    runs: dict[str, int] = {}
    taken = []
    for number in np.random.default_rng(0).permutation(len(observations)).tolist():
        one = observations[number]
        if runs.get(source_of(one), 0) < MOST_RUNS:
            taken.append(one)
            runs[source_of(one)] = runs.get(source_of(one), 0) + len(one.sources)
    return taken


def weighted_quantiles(values: Floats, weights: Floats, shares: Sequence[float]) -> list[float]:
    """Return quantiles of weighted values: where the running sum of weights passes each share."""
    order = np.argsort(values)
    passed = np.cumsum(weights[order]) / weights.sum()
    at = [min(int(np.searchsorted(passed, share)), len(values) - 1) for share in shares]
    return [float(values[order][i]) for i in at]


def parameters_for(observations: Sequence[Target]) -> list[Parameter]:
    """Return the parameters that the observations depend on."""
    found = [
        Parameter(name, constants()[name], prior)
        for name, prior in priors().items()
        if ":" not in name and "/" not in name
    ]
    settings = [observation.setting for observation in observations]
    for family, device in sorted({kernel_family(s): s.cluster.pool.device.id for s in settings}.items()):
        known = kernels(device)
        values = {"gemm_efficiency": known.gemm_efficiency}
        values |= {f"attention_efficiency.{k}": v for k, v in known.attention_efficiency.items()}
        names = ((f"{family}:{name}", value) for name, value in values.items())
        found += [Parameter(name, value, priors()[name]) for name, value in names if name in priors()]
    of_any = {n.split("/")[1]: prior for n, prior in priors().items() if n.startswith(f"{ANY_STACK}/")}
    for name, facts in sorted({s.stack.name: s.stack for s in settings}.items()):
        found += [
            Parameter(f"{name}/{field}", getattr(facts, field), prior) for field, prior in of_any.items()
        ]
    return [p for p in found if any(p.concerns(o) for o in observations)]
