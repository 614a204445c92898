"""Gradients of layers that several pipeline ranks hold: one for each chain of stages of a bidirectional schedule.

Each of C chains holds the whole model and takes 1/C of the micro-batches, so the gradient of a parameter is the sum of
what its copies have found. Under DualPipe (C = 2, P ranks) stage s and stage P + s have the same layers and lie on the
ranks s and P−1−s, which mirror each other: both hold the layers of these two stages, and sum up the gradients of either
(REDUCE_MIRRORED, axis "mirrored"). Then every copy takes the same optimizer step by itself, and the copies stay equal.

The exchange comes after the reduction over the data-parallel ranks. Both are sums, so that their order does not matter
to the result; but after it a rank needs no more than its shard, and its mirror has the same shard of the same layers
(equal stages are cut alike): what is exchanged is gradient bytes · ⌈elements / shards⌉ under ZeRO 1, 2 and 3, and all
elements where nothing is sharded. Every unit that is reduced as one (a stage, or each of its blocks where they are
gathered layer by layer) has an exchange, the stages in the order of their places in a chain, the same on both ranks.

A rank with the embedding has the head of the other chain: it holds one table for both, whose gradient is complete, from
all four, when this exchange has ended; REDUCE_TIED has nothing to add.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from meshwright.program.local_shape import LocalShape
from meshwright.program.model_states.data_parallel_collectives import add
from meshwright.program.model_states.state_elements import Elements
from meshwright.program.pass_items import Collective
from meshwright.stack.stack import Stack

MIRRORED = ("mirrored",)


def reduced_units(blocks: Sequence[Elements], gather: str) -> tuple[Elements, ...]:
    """Return the elements of every unit of a stage that is reduced by itself."""
    return tuple(blocks) if gather == "per-layer" else (add(*blocks),)


def mirrored_reduction(
    units: Iterable[Elements], shape: LocalShape, stack: Stack, what: str
) -> tuple[Collective, ...]:
    """All-reduces of the shards of a stage's gradients over the pipeline ranks that hold its layers."""
    size, gradients = stack.gradient_communication_bytes, [unit.of("gradient") for unit in units]
    shards = [
        shard
        for held in gradients
        for shard in (np.ceil(held.dense / shape.shard), np.ceil(held.expert / shape.expert_shard))
    ]
    return tuple(Collective("all-reduce", MIRRORED, size * shard, what) for shard in shards if np.any(shard))
