"""Items of a block in one iteration of serving: training's forward pass, with the exchanges that engines make instead.

An operator that is not in ``SERVED`` has the items of training without sequence parallelism
(``program/lowering/block_items.py``): tp sums up activations behind attention and behind the feed-forward part. Of the
others

=============  ==========================================================================================
Attention      ranks of cp gather the keys and values of prompts, each of its own rows
Dispatch       ranks of attention_dp and cp gather all rows, or send copies to experts: the quicker
Combine        they scatter the results, or send them back; where all ranks have the same rows tp sums them
LeaveTensor    the sum of shared experts joins that of routed ones, where tp sums both
Loss           ranks of tp gather the logits of the rows whose next token is asked for
=============  ==========================================================================================

Works for one iteration and for arrays of them: an exchange of 0 bytes is none. Rows go to experts in 8 bit where
weights are stored so, and back in 16. Ignored: the sum over tp within the norm of a linear attention's result, and the
merge of partial attention where ranks of cp share a cache.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from meshwright.model.graph import Block
from meshwright.model.operators.operator_types import (
    Attention,
    Combine,
    Dispatch,
    GatedInputNorm,
    GatedNorm,
    LinearAttention,
    Loss,
    Operator,
)
from meshwright.program.local_shape import ACTIVATION_BYTES, Mode
from meshwright.program.lowering.block_items import operator_forward_items
from meshwright.program.pass_items import Collective, CollectiveKind, Compute, Item
from meshwright.program.serving.iteration_shape import IterationShape
from meshwright.program.serving.kv_bytes import cached_elements
from meshwright.program.serving.storage_formats import WEIGHT_BITS
from meshwright.stack.load import load_stack
from meshwright.stack.stack import Stack

SERVING_MODE = Mode(sequence_parallel=False)
ROWS_AXES = ("tp", "cp", "dp_replicate")
"""The ranks of a stage: all of them meet the experts."""


@cache
def program_stack() -> Stack:
    """Return the facts under which training's lowering is asked for operators that serving has too."""
    return load_stack("generic")


def iteration_items(block: Block, shape: IterationShape) -> tuple[Item, ...]:
    """Return what a rank does of one block in one iteration."""
    joined = {name for op in block.operators if isinstance(op, Combine) for name in op.reads}
    local, stack, items = shape.local, program_stack(), list[Item]()
    for op in block.operators:
        rule = SERVED.get(type(op))
        if rule is not None:
            items += rule(op, shape)
            continue
        made = operator_forward_items(op, local, SERVING_MODE, stack)
        items += _of_own_rows(made, shape) if op.name in joined else made
    return tuple(items)


def live_items(items: Iterable[Item], members: Callable[[tuple[str, ...]], int]) -> tuple[Item, ...]:
    """Return the items of one iteration without collectives of nothing, and of groups of one rank."""
    live: list[Item] = []
    for item in items:
        if not isinstance(item, Collective):
            live.append(item)
            continue
        alternatives = tuple(other for other in item.alternatives if members(other.axes) > 1)
        if members(item.axes) > 1 and item.logical_bytes > 0:
            live.append(replace(item, alternatives=alternatives))
    return tuple(live)


def _of_own_rows(items: Iterable[Item], shape: IterationShape) -> list[Item]:
    """Return items whose collectives are made only where ranks have rows of their own."""
    own = np.asarray(shape.expert_groups) > 1
    return [
        replace(item, logical_bytes=item.logical_bytes * own) if isinstance(item, Collective) else item
        for item in items
    ]


def _alone(op: Operator, shape: IterationShape) -> list[Item]:
    return [Compute(op, "F")]


def _attention(op: Attention, shape: IterationShape) -> list[Item]:
    keys = ACTIVATION_BYTES * cached_elements(op, shape.degrees.tp) * shape.load.prompt_tokens
    return [Compute(op, "F"), Collective("all-gather", ("cp",), keys, op.name)]


def _dispatch(op: Dispatch, shape: IterationShape) -> list[Item]:
    sent = min(ACTIVATION_BYTES, WEIGHT_BITS[shape.formats.weights] / 8)
    return [Compute(op, "F"), _moved_rows(op, shape, "all-gather", max(sent, 1.0))]


def _combine(op: Combine, shape: IterationShape) -> list[Item]:
    """Return the way back of results; without rows of their own ranks hold parts of the same sums."""
    alike = np.asarray(shape.expert_groups) == 1
    summed = ACTIVATION_BYTES * op.width * shape.rows * alike
    moved = _moved_rows(op, shape, "reduce-scatter", ACTIVATION_BYTES)
    return [moved, Collective("all-reduce", ("tp",), summed, op.name), Compute(op, "F")]


def _moved_rows(
    op: Dispatch | Combine, shape: IterationShape, kind: CollectiveKind, element_bytes: float
) -> Collective:
    """Return the gather or scatter of all ranks' rows, or in its place the exchange of a token's copies over ep."""
    groups, tp, ep = shape.expert_groups, shape.degrees.tp, np.asarray(shape.degrees.ep)
    row = element_bytes * op.width * (np.asarray(groups) > 1)
    reached = ep * (1 - (1 - 1 / ep) ** op.experts_per_token)
    copies = Collective("all-to-all", ("ep",), row * shape.rows / tp * reached, op.name)
    return Collective(kind, ROWS_AXES, row * shape.rows * groups, op.name, alternatives=(copies,))


def _loss(op: Loss, shape: IterationShape) -> list[Item]:
    logits = ACTIVATION_BYTES * op.vocab * shape.logit_rows
    return [Collective("all-gather", ("tp",), logits, op.name), Compute(op, "F")]


SERVED: dict[type[Operator], Callable[[Any, IterationShape], list[Item]]] = {
    Attention: _attention,
    LinearAttention: _alone,
    GatedNorm: _alone,
    GatedInputNorm: _alone,
    Dispatch: _dispatch,
    Combine: _combine,
    Loss: _loss,
}
"""Operators whose exchanges are others than training's."""
