"""Layers of pipeline stages, and the largest sum over a stage.

Stages have consecutive layers, as evenly as can be, the earlier stages one more. Layers of multi-token prediction are
not served.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.model.graph import Block, ModelGraph
from meshwright.program.local_shape import Number


def served_layers(model: ModelGraph) -> tuple[int, ...]:
    """Return the block index of every layer that predicts the next token."""
    further = {index for index, block in enumerate(model.blocks) if block.predicts_further}
    return tuple(index for index in model.layer_blocks if index not in further)


def layers_of_stages(layers: int, stages: int) -> list[int]:
    """Return the number of layers of each stage."""
    return [layers // stages + (stage < layers % stages) for stage in range(stages)]


def largest_stage(
    model: ModelGraph,
    stages: Number,
    of_block: Callable[[Block], Number],
    ends: tuple[Number, Number] = (0.0, 0.0),
) -> NDArray[Any]:
    """Return the largest sum of ``of_block`` over the layers of a stage; ``ends``: more on the first and the last."""
    layers = served_layers(model)
    return largest_sum(layers, stages, {i: of_block(model.blocks[i]) for i in dict.fromkeys(layers)}, ends)


def largest_sum(
    layers: Sequence[int],
    stages: Number,
    of_blocks: Mapping[int, Number],
    ends: tuple[Number, Number] = (0.0, 0.0),
) -> NDArray[Any]:
    """Return the largest sum over the layers of a stage of values by block; ``layers``: the block of each layer."""
    first, last, *own = (np.asarray(value, float) for value in (*ends, *of_blocks.values()))
    degrees, *arrays = np.broadcast_arrays(np.asarray(stages), first, last, *own)
    values = dict(zip(of_blocks, arrays[2:], strict=True))
    found = np.zeros(degrees.shape)
    for degree in np.unique(degrees):
        stage_sums = _stage_sums(layers, int(degree), values)
        stage_sums[0] = stage_sums[0] + arrays[0]
        stage_sums[-1] = stage_sums[-1] + arrays[1]
        unlike = {id(one): one for one in stage_sums}
        found = np.where(degrees == degree, reduce(np.maximum, unlike.values()), found)
    return found


def _stage_sums(layers: Sequence[int], degree: int, values: dict[int, NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the sum of the values of each stage's layers; of stages with equal layers one array."""
    stages = _blocks_of_stages(tuple(layers), degree)
    zero = np.zeros_like(next(iter(values.values())))
    sums = {
        counts: sum((values[index] * times for index, times in counts), start=zero)
        for counts in dict.fromkeys(stages)
    }
    return [sums[counts] for counts in stages]


@cache
def _blocks_of_stages(layers: tuple[int, ...], degree: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return the blocks of each stage, each with the number of its layers there."""
    ends = [0, *accumulate(layers_of_stages(len(layers), degree))]
    return tuple(tuple(Counter(layers[begin:end]).items()) for begin, end in pairwise(ends))
