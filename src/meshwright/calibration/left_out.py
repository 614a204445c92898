"""Leave one source out: fit on all others, predict the one that was not seen. What a new cluster would find."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from meshwright.calibration.fit import Begun, beginning, fit
from meshwright.calibration.observations import Observation, Target
from meshwright.calibration.parameters import Parameter, parameters_for

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LeftOut:
    """A source, the constants that were fitted without it, and log(predicted/measured) of its observations."""

    source: str
    values: Mapping[str, float]
    observations: tuple[Observation, ...]
    errors: tuple[Floats, ...]


def leave_out(
    observations: Sequence[Observation],
    progress: Callable[[LeftOut], None] | None = None,
    beside: Sequence[Target] = (),
) -> list[LeftOut]:
    """Predict every source under constants fitted without it, one process per fit.

    Targets ``beside`` the observations are fitted too, unless they are of the source that is left out. All fits begin
    at the priors, so that they begin with the same derivatives.
    """
    sources = sorted({source for observation in observations for source in observation.sources})
    unseen = at_priors(observations)
    begun = beginning([*observations, *beside], unseen)
    found: list[LeftOut] = []
    with ProcessPoolExecutor() as processes:
        for left in processes.map(partial(without, observations, beside, unseen, begun), sources):
            found.append(left)
            if progress:
                progress(left)
    return found


def at_priors(observations: Sequence[Observation]) -> list[Parameter]:
    """The parameters as they were believed to be before any run was seen."""
    return [replace(p, value=p.prior.value) for p in parameters_for(observations)]


def without(
    observations: Sequence[Observation],
    beside: Sequence[Target],
    unseen: Sequence[Parameter],
    begun: Begun,
    source: str,
) -> LeftOut:
    """Fit all but one source and predict it.

    The fit begins at the priors, and what only the source itself could say (its stack's numbers, its devices') stays
    there: nothing of what it taught the present constants is used.
    """
    known = zip((*observations, *beside), begun, strict=True)
    others = [(o, first) for o, first in known if source not in o.sources]
    values = fit([o for o, _ in others], unseen, begun=[first for _, first in others]).values
    own = tuple(o for o in observations if source in o.sources)
    return LeftOut(source, values, own, tuple(o.log_errors(values) for o in own))


def weighted_quantiles(values: Floats, weights: Floats, shares: Sequence[float]) -> list[float]:
    """Quantiles of weighted values: where the running sum of weights passes each share."""
    order = np.argsort(values)
    passed = np.cumsum(weights[order]) / weights.sum()
    at = [min(int(np.searchsorted(passed, share)), len(values) - 1) for share in shares]
    return [float(values[order][i]) for i in at]
