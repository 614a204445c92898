"""Leave one source out: fit on all others and predict it, to estimate the error on a new cluster."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from meshwright.calibration.fit import FitStarts, fit, fit_start
from meshwright.calibration.fitted_parameters import Parameter, priors
from meshwright.calibration.observations import Observation, Target, kernel_family
from meshwright.cost.constants import constants, kernels

Floats = NDArray[np.float64]

ANY_STACK = "*"


@dataclass(frozen=True)
class LeftOutSource:
    """A source, the constants fitted without it, and log(predicted/measured) of its observations."""

    source: str
    values: Mapping[str, float]
    observations: tuple[Observation, ...]
    errors: tuple[Floats, ...]


def leave_one_source_out(
    observations: Sequence[Observation],
    progress: Callable[[LeftOutSource], None] | None = None,
    further: Sequence[Target] = (),
) -> list[LeftOutSource]:
    """Predict every source under constants fitted without it, one process per fit.

    Targets ``further`` the observations are fitted too, unless they are of the source that is left out. All fits begin
    at the priors, and therefore with the same derivatives.
    """
    sources = sorted({source for observation in observations for source in observation.sources})
    unseen = prior_values(observations)
    begun = fit_start([*observations, *further], unseen)
    found: list[LeftOutSource] = []
    with ProcessPoolExecutor() as processes:
        for left in processes.map(partial(without, observations, further, unseen, begun), sources):
            found.append(left)
            if progress:
                progress(left)
    return found


def prior_values(observations: Sequence[Observation]) -> list[Parameter]:
    """Return the parameters at their prior values."""
    return [replace(p, value=p.prior.value) for p in parameters_for(observations)]


def without(
    observations: Sequence[Observation],
    further: Sequence[Target],
    unseen: Sequence[Parameter],
    begun: FitStarts,
    source: str,
) -> LeftOutSource:
    """Fit all but one source and predict it.

    The fit begins at the priors, and what only this source determines (its stack's numbers, its devices') stays
    there: nothing that it contributed to the present constants is used.
    """
    known = zip((*observations, *further), begun, strict=True)
    others = [(o, first) for o, first in known if source not in o.sources]
    values = fit([o for o, _ in others], unseen, begun=[first for _, first in others]).values
    own = tuple(o for o in observations if source in o.sources)
    return LeftOutSource(source, values, own, tuple(o.log_errors(values) for o in own))


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
