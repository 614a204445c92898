"""Collectives of attention over cp, from the description of the form (``plans/context_parallel_forms``).

Around attention (``heads_exchange_before_attention``, ``heads_exchange_after_attention``): where ranks exchange
heads, all-to-all brings whole sequences of queries, keys and values of a part of the heads, and takes the output
back. In between (``attention_with_exchanges``), the ranks that still have a part of the sequence each exchange what the
form says, in logical bytes of one rank's heads: activations travel in 2 bytes, a row's statistic in 4.

A rank passes on what it got n − 1 times. The gradients of keys and values begin at the next rank and end at home, where
the home's own part is added: n − 1 times as well.
"""

import numpy as np

from meshwright.model.operators.operator_types import Attention
from meshwright.plans.context_parallel_forms.form_kind import Elements
from meshwright.program.context_parallel.positions_and_masks import CONTEXT_PARTS
from meshwright.program.local_shape import ACTIVATION_BYTES, STATISTIC_BYTES, LocalShape, Mode, Number
from meshwright.program.pass_items import Collective, Compute, Item, Overlap, Phase


def heads_exchange_before_attention(op: Attention, shape: LocalShape, mode: Mode, phase: Phase) -> list[Item]:
    """Return the exchange of heads before attention: queries, keys, values; backward, their gradients."""
    widths = op.heads * op.qk_dim + op.kv_heads * (op.qk_dim + op.v_dim)
    return _heads(op, "entering", widths, shape, mode, phase)


def heads_exchange_after_attention(op: Attention, shape: LocalShape, mode: Mode, phase: Phase) -> list[Item]:
    """Return the exchange of heads after attention: its output; backward, the output's gradient."""
    return _heads(op, "leaving", op.heads * op.v_dim, shape, mode, phase)


def attention_with_exchanges(op: Attention, shape: LocalShape, mode: Mode, phase: Phase) -> list[Item]:
    """Return attention and what its form exchanges with it: forward, or the gradient of the input."""
    kind, compute = mode.context.kind, Compute(op, phase)
    found: dict[str, list[Collective]] = {"ring": [], "all-gather": [], "reduce-scatter": []}
    for exchange in kind.forward(op) if phase == "F" else kind.backward(op):
        name = f"{op.name} {exchange.name}".rstrip()
        moved = _bytes(exchange.elements, shape)
        found[exchange.kind].append(Collective(exchange.kind, ring_axes(mode), moved, name, phase))
    attention = Overlap((compute,), tuple(found["ring"])) if found["ring"] else compute
    return [*found["all-gather"], attention, *found["reduce-scatter"]]


def attention_exchange_buffer_bytes(op: Attention, shape: LocalShape, mode: Mode) -> Number:
    """Return the bytes that attention's backward pass holds on a rank of what belongs to others."""
    held = _bytes(mode.context.kind.buffer(op), shape)
    if not mode.context.kind.gathers:
        held = held / shape.ring
    return held * (np.asarray(shape.ring) > 1)


def heads_axes(mode: Mode) -> tuple[str, ...]:
    """Return the axis over which ranks exchange heads."""
    return (CONTEXT_PARTS[0],) if mode.context.two_dimensional else ("cp",)


def ring_axes(mode: Mode) -> tuple[str, ...]:
    """Return the axis whose ranks hold parts of the sequence and bring queries to keys."""
    return (CONTEXT_PARTS[1],) if mode.context.two_dimensional else ("cp",)


def _heads(op: Attention, which: str, width: int, shape: LocalShape, mode: Mode, phase: Phase) -> list[Item]:
    if not mode.context.kind.whole_sequences and not mode.context.two_dimensional:
        return []
    rows = ACTIVATION_BYTES * width * shape.tokens / shape.tp
    return [Collective("all-to-all", heads_axes(mode), rows, f"{op.name} {which}", phase)]


def _bytes(elements: Elements, shape: LocalShape) -> Number:
    """Return the bytes on all ring ranks together for one rank's heads, from the elements per token of all heads."""
    per_token = ACTIVATION_BYTES * elements.activations + STATISTIC_BYTES * elements.statistics
    return per_token / shape.tp / shape.ulysses * shape.micro_batch * shape.seq_len
