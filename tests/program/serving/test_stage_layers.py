"""Layers of stages: sums, and the fullest stage against a plain loop."""

import numpy as np
import pytest

from meshwright.model.load import load_model
from meshwright.program.serving.stage_layers import (
    largest_stage,
    layers_of_stages,
    served_layers,
)


@pytest.mark.parametrize(("layers", "stages"), [(80, 1), (80, 3), (61, 8), (36, 5)])
def test_stages_share_layers_evenly(layers, stages):
    counts = layers_of_stages(layers, stages)
    assert sum(counts) == layers
    assert max(counts) - min(counts) <= 1
    assert counts == sorted(counts, reverse=True)


def test_the_largest_stage_of_unlike_layers_is_that_of_a_plain_loop():
    model = load_model("deepseek-v3")
    layers = served_layers(model)
    assert len(layers) == 61
    value = {index: float(10 + index) for index in set(layers)}
    for stages in (1, 2, 4, 7):
        sums, begin = [], 0
        for count in layers_of_stages(61, stages):
            sums.append(sum(value[index] for index in layers[begin : begin + count]))
            begin += count
        sums[0] += 100.0
        sums[-1] += 50.0
        found = largest_stage(
            model,
            np.array([stages]),
            lambda block: value[model.blocks.index(block)],
            ends=(100.0, 50.0),
        )
        assert found == max(sums)
