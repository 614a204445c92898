"""Bytes of the cache of keys and values, and of states, on one rank.

Of one sequence of c tokens, blocks of B tokens, e bytes an element, on a rank of tp and cp:

    softmax, heads cached     e · (kv_width/kv_heads) · ⌈kv_heads/tp⌉ · B · ⌈⌈c/B⌉/cp⌉
                              (tp > kv_heads: every head has tp/kv_heads copies)
    latent                    e · kv_width · B · ⌈⌈c/B⌉/cp⌉, whole on each rank of tp
    window of w               as these, of min(c, w) tokens
    linear attention          4 · heads/tp · head_dim², whatever the length
    Mamba-2                   4 · width/tp · state + 2 · (filter − 1) · (width/tp + 2·state·groups/tp), one group whole

Ranks of attention_dp have different sequences. A stage of a pipeline has what its own layers cache; the rank with most
limits the replica. States are in fp32, filters' inputs in 16 bit (vLLM's and SGLang's defaults).
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.model.graph import Block, ModelGraph
from meshwright.model.operators.operator_types import Attention, LinearAttention, Operator, StateSpace
from meshwright.program.local_shape import Number
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.stage_layers import largest_stage, served_layers
from meshwright.program.serving.storage_formats import StorageFormats

STATE_BYTES = 4
FILTER_BYTES = 2


def cached_elements(op: Attention, tp: Number) -> Number:
    """Return the elements that one token adds to the cache of a rank of tp."""
    if not op.cache_over_tp:
        return op.kv_width * np.ones_like(tp)
    return op.kv_width / op.kv_heads * np.ceil(op.kv_heads / np.asarray(tp))


def cached_tokens(op: Attention, tokens: Number) -> Number:
    """Return how many of a sequence's tokens an operator keeps: those of its window."""
    return tokens if op.window is None else np.minimum(tokens, op.window)


def operator_cache_bytes(
    op: Operator, tokens: Number, degrees: ReplicaDegrees, formats: StorageFormats, block_tokens: int = 1
) -> Number:
    """Return the bytes on a rank that one operator keeps of a sequence of ``tokens``."""
    tp = degrees.tp
    if isinstance(op, Attention):
        blocks = np.ceil(np.ceil(np.asarray(cached_tokens(op, tokens)) / block_tokens) / degrees.cp)
        return formats.kv_bytes * cached_elements(op, tp) * block_tokens * blocks
    if isinstance(op, LinearAttention):
        return STATE_BYTES * op.heads / np.asarray(tp) * op.head_dim**2
    if isinstance(op, StateSpace):
        width = op.width / np.asarray(tp)
        filtered = (
            FILTER_BYTES * (op.filter_length - 1) * (width + 2 * op.state * op.shared_groups(np.asarray(tp)))
        )
        return STATE_BYTES * width * op.state + filtered
    return 0.0


def block_cache_bytes(
    block: Block, tokens: Number, degrees: ReplicaDegrees, formats: StorageFormats, block_tokens: int = 1
) -> Number:
    """Return the bytes on a rank that one layer keeps of a sequence of ``tokens``."""
    kept: Number = 0.0
    for op in block.operators:
        kept = kept + operator_cache_bytes(op, tokens, degrees, formats, block_tokens)
    return kept


def sequence_cache_bytes(
    model: ModelGraph,
    tokens: Number,
    degrees: ReplicaDegrees,
    formats: StorageFormats,
    block_tokens: int = 1,
) -> NDArray[Any]:
    """Return the bytes of a sequence of ``tokens`` on the rank of its replica that keeps most of it."""

    def of_block(block: Block) -> Number:
        return block_cache_bytes(block, tokens, degrees, formats, block_tokens)

    return largest_stage(model, degrees.pp, of_block)


def stage_sequence_bytes(
    model: ModelGraph,
    tokens: Number,
    degrees: ReplicaDegrees,
    formats: StorageFormats,
    stages: Number,
) -> NDArray[Any]:
    """Return the bytes of a sequence in the layers of the fullest of ``stages``, copies on ranks of tp included."""

    whole = replace(degrees, cp=1)

    def of_block(block: Block) -> Number:
        return block_cache_bytes(block, tokens, whole, formats) * degrees.tp

    return largest_stage(model, stages, of_block)


def replica_bytes_per_token(model: ModelGraph, degrees: ReplicaDegrees, formats: StorageFormats) -> Number:
    """Return the bytes that a token adds to the cache, over all ranks that hold it, copies included.

    It is that of a token inside every window.
    """
    kept: Number = 0.0
    for index in served_layers(model):
        for op in model.blocks[index].operators:
            if isinstance(op, Attention):
                kept = kept + formats.kv_bytes * cached_elements(op, degrees.tp) * degrees.tp
    return kept
