"""Leave one source out: fit on all others, predict the one that was not seen. What a new cluster would find."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from meshwright.calibration.fit import fit
from meshwright.calibration.observations import Observation
from meshwright.calibration.parameters import parameters_for

Floats = NDArray[np.float64]
LeftOut = tuple[Observation, Floats]


def left_out_errors(
    observations: Sequence[Observation], progress: Callable[[str, Floats], None] | None = None
) -> list[LeftOut]:
    """Every observation with log(predicted/measured) under constants fitted without its source."""
    found: list[LeftOut] = []
    for source in sorted({source for observation in observations for source in observation.sources}):
        others = [o for o in observations if source not in o.sources]
        values = fit(others, parameters_for(others)).values
        own = [(o, o.log_errors(values)) for o in observations if source in o.sources]
        found += own
        if progress:
            progress(source, np.concatenate([errors for _, errors in own]))
    return found


def weighted_quantiles(values: Floats, weights: Floats, shares: Sequence[float]) -> list[float]:
    """Quantiles of weighted values: where the running sum of weights passes each share."""
    order = np.argsort(values)
    passed = np.cumsum(weights[order]) / weights.sum()
    at = [min(int(np.searchsorted(passed, share)), len(values) - 1) for share in shares]
    return [float(values[order][i]) for i in at]
