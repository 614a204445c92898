"""Leave one source out: fit on all others, predict the one that was not seen. What a new cluster would find."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from meshwright.calibration.fit import fit
from meshwright.calibration.observations import Observation
from meshwright.calibration.parameters import parameters_for

Floats = NDArray[np.float64]


def left_out_errors(
    observations: Sequence[Observation], progress: Callable[[str, Floats], None] | None = None
) -> dict[str, Floats]:
    """log(predicted/measured) of every source's runs under constants that were fitted without that source."""
    sources = sorted({source for observation in observations for source in observation.sources})
    errors = {}
    for source in sources:
        others = [o for o in observations if source not in o.sources]
        own = [o for o in observations if source in o.sources]
        values = fit(others, parameters_for(others)).values
        errors[source] = np.concatenate([o.log_errors(values) for o in own])
        if progress:
            progress(source, errors[source])
    return errors
