"""Memory limits small batches, arithmetic large ones."""

import numpy as np
from replicas import replica

from meshwright.cost.serving.iteration_limits import limiting_resource
from meshwright.cost.serving.operators import IterationLoad


def test_small_batches_are_limited_by_memory_and_prompts_by_arithmetic():
    load = IterationLoad(
        prompt_tokens=np.array([0.0, 8192.0]),
        prompt_positions=4096.0,
        sequences=np.array([8.0, 0.0]),
        context=1000.0,
    )
    assert limiting_resource(replica(tp=2), load).tolist() == ["memory_bandwidth", "compute"]
