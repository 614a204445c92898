"""The resource that limits a replica's iterations: arithmetic or memory bandwidth.

It is the one whose doubling shortens the iteration most.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.iteration import ReplicaCost, iteration_seconds
from meshwright.cost.serving.operators import IterationLoad


def limiting_resource(cost: ReplicaCost, load: IterationLoad) -> NDArray[Any]:
    """Return ``compute`` or ``memory_bandwidth`` for each replica."""
    times, forms = cost.times, cost.times.forms
    more_compute = replace(
        times,
        forms=replace(forms, peak_16bit_flops=2 * forms.peak_16bit_flops),
        peak_flops={name: 2 * rate for name, rate in times.peak_flops.items()},
    )
    more_memory = replace(times, forms=replace(forms, memory_bytes_per_s=2 * forms.memory_bytes_per_s))
    with_compute = iteration_seconds(replace(cost, times=more_compute), load)
    with_memory = iteration_seconds(replace(cost, times=more_memory), load)
    return np.where(np.asarray(with_compute) < with_memory, "compute", "memory_bandwidth")
