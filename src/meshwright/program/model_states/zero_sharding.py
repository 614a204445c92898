"""Shards of optimizer states, gradients and parameters under ZeRO (Rajbhandari et al., arXiv 1910.02054).

What a stack makes of a ZeRO name stands in ``stack_zero_semantics.py``. Whether a gradient is whole before it is
reduced is a question of buffers (``cost/memory/zero_unsharded_buffers.py``); ``cost/memory/rank_ledgers.py`` adds both.
"""

from typing import NamedTuple

import numpy as np

from meshwright.program.local_shape import LocalShape, Number
from meshwright.program.model_states.state_elements import (
    NOT_PACKED,
    Elements,
    Packed,
    StateKind,
    bytes_per_element,
)
from meshwright.program.model_states.uneven_shards import largest_shard
from meshwright.stack.stack import Stack

SHARDED: dict[str, tuple[StateKind, ...]] = {
    "none": (),
    "zero1": ("optimizer",),
    "zero2": ("optimizer", "gradient"),
    "zero3": ("optimizer", "gradient", "parameter"),
}
"""Which kinds of state each ZeRO name cuts over the data-parallel shard axes."""


class HeldElements(NamedTuple):
    """Elements of one kind of state that a rank holds."""

    dense: Number
    expert: Number

    @property
    def total(self) -> Number:
        """Both together."""
        return self.dense + self.expert


def held_elements(elements: Elements, kind: StateKind, sharded: bool, shape: LocalShape) -> HeldElements:
    """Return what a rank holds of a block's states of one kind; ``sharded``: cut over the shard axes.

    Of ranks with uneven shards the one with the largest counts.
    What is packed is apart (``held_packed``); what a rank has of its own is never cut.
    """
    elements = elements.of(kind)
    if not sharded:
        return HeldElements(elements.dense + elements.own, elements.expert)
    dense = largest_shard(elements.dense, shape) + elements.own
    return HeldElements(dense, np.ceil(elements.expert / shape.expert_shard))


def held_packed(elements: Elements, sharded: bool, shape: LocalShape) -> Packed:
    """Return what a rank holds of a block's packed parameters."""
    packed, shards = elements.packed, (shape.shard, shape.expert_shard)
    if not sharded or packed is NOT_PACKED:
        return packed
    return Packed(*(np.ceil(size / shards[at % 2]) for at, size in enumerate(packed)))


def state_bytes(
    elements: Elements, kind: StateKind, sharded: bool, shape: LocalShape, stack: Stack
) -> Number:
    """Bytes of one kind of state on one rank."""
    held = bytes_per_element(kind, stack) * held_elements(elements, kind, sharded, shape).total
    return held + held_packed(elements, sharded, shape).bytes if kind == "parameter" else held
