"""Collectives of attention over cp, by the form of context parallelism (``plans/context_parallel.py``).

Around attention (``heads_exchange_before_attention``, ``heads_exchange_after_attention``): where ranks exchange
heads, all-to-all brings whole sequences of queries, keys and values of a part of the heads, and takes the output
back. In between (``attention_with_exchanges``), over the ranks that still have a part of the sequence each; n of
them, logical bytes of one rank's heads:

==============  ===========================================  ======================================================
form            forward                                      gradient of the input
==============  ===========================================  ======================================================
``ring``        keys and values, beside attention            keys and values with their gradients, beside it
``rsa``         keys, then values, beside it                 keys, values and gradients of both, beside it
``all-gather``  keys and values gathered before it           gathered again before it, gradients scattered after it
``token-ring``  queries, beside it; results straight back    queries, outputs, their gradients and statistics, beside
                beside that                                  it; gradients of queries straight back
==============  ===========================================  ======================================================

A rank passes on what it got n − 1 times. The gradients of keys and values begin at the next rank and end at home, where
the home's own part is added: n − 1 times as well. Activations travel in 2 bytes, a row's statistic in 4.
"""

from collections.abc import Callable

import numpy as np

from meshwright.model.operators.operator_types import Attention
from meshwright.plans.context_parallel import ContextForm
from meshwright.program.context_parallel.positions_and_masks import CONTEXT_PARTS
from meshwright.program.local_shape import ACTIVATION_BYTES, STATISTIC_BYTES, LocalShape, Mode, Number
from meshwright.program.pass_items import Collective, Compute, Item, Overlap, Phase

RETURNS = "returns"
"""Ends the name of what goes straight back to the rank that it belongs to."""


def heads_exchange_before_attention(op: Attention, shape: LocalShape, mode: Mode, phase: Phase) -> list[Item]:
    """Return the exchange of heads before attention: queries, keys, values; backward, their gradients."""
    widths = op.heads * op.qk_dim + op.kv_heads * (op.qk_dim + op.v_dim)
    return _heads(op, "entering", widths, shape, mode, phase)


def heads_exchange_after_attention(op: Attention, shape: LocalShape, mode: Mode, phase: Phase) -> list[Item]:
    """Return the exchange of heads after attention: its output; backward, the output's gradient."""
    return _heads(op, "leaving", op.heads * op.v_dim, shape, mode, phase)


def attention_with_exchanges(op: Attention, shape: LocalShape, mode: Mode, phase: Phase) -> list[Item]:
    """Attention and what its form exchanges with it: forward, or the gradient of the input."""
    compute = Compute(op, phase)
    form = _FORMS.get(mode.context.form)
    return form(op, compute, shape, mode) if form else [compute]


def attention_exchange_buffer_bytes(op: Attention, shape: LocalShape, mode: Mode) -> Number:
    """Bytes that attention's backward pass has on a rank of what belongs to others.

    What goes round is there twice, as it comes and as it goes on; what is gathered is there whole, with its gradients.
    """
    once, form = _key_value_bytes(op, shape), mode.context.form
    if form == "all-gather":
        held = 2 * once
    elif form == "token-ring":
        width = op.heads * (2 * ACTIVATION_BYTES * (op.qk_dim + op.v_dim) + STATISTIC_BYTES)
        held = 2 * _bytes(width, shape) / shape.ring
    else:
        held = 4 * once / shape.ring
    return held * (np.asarray(shape.ring) > 1)


def heads_axes(mode: Mode) -> tuple[str, ...]:
    """Return the axis over which ranks exchange heads."""
    return (CONTEXT_PARTS[0],) if mode.context.two_dimensional else ("cp",)


def ring_axes(mode: Mode) -> tuple[str, ...]:
    """Return the axis whose ranks hold parts of the sequence and bring queries to keys."""
    return (CONTEXT_PARTS[1],) if mode.context.two_dimensional else ("cp",)


def _heads(op: Attention, which: str, width: int, shape: LocalShape, mode: Mode, phase: Phase) -> list[Item]:
    if mode.context.form != "ulysses" and not mode.context.two_dimensional:
        return []
    rows = ACTIVATION_BYTES * width * shape.tokens / shape.tp
    return [Collective("all-to-all", heads_axes(mode), rows, f"{op.name} {which}", phase)]


def _bytes(per_token: Number, shape: LocalShape) -> Number:
    """Return the bytes on all ring ranks together for one rank's heads, from ``per_token`` bytes over all heads."""
    return per_token / shape.tp / shape.ulysses * shape.micro_batch * shape.seq_len


def _key_value_bytes(op: Attention, shape: LocalShape) -> Number:
    return _bytes(ACTIVATION_BYTES * op.kv_heads * (op.qk_dim + op.v_dim), shape)


def _ring(op: Attention, compute: Compute, shape: LocalShape, mode: Mode) -> list[Item]:
    once = _key_value_bytes(op, shape)
    moved = once if compute.phase == "F" else 2 * once
    return [Overlap((compute,), (Collective("ring", ring_axes(mode), moved, op.name, compute.phase),))]


def _all_gather(op: Attention, compute: Compute, shape: LocalShape, mode: Mode) -> list[Item]:
    once, axes, phase = _key_value_bytes(op, shape), ring_axes(mode), compute.phase
    gather = Collective("all-gather", axes, once, op.name, phase)
    if phase == "F":
        return [gather, compute]
    return [gather, compute, Collective("reduce-scatter", axes, once, op.name, phase)]


def _token_ring(op: Attention, compute: Compute, shape: LocalShape, mode: Mode) -> list[Item]:
    queries, outputs = ACTIVATION_BYTES * op.heads * op.qk_dim, ACTIVATION_BYTES * op.heads * op.v_dim
    statistics = STATISTIC_BYTES * op.heads
    there, back = queries, outputs + statistics
    if compute.phase != "F":
        there, back = queries + 2 * outputs + statistics, queries
    return [
        Overlap(
            (compute,),
            (
                Collective("ring", ring_axes(mode), _bytes(there, shape), op.name, compute.phase),
                Collective(
                    "ring", ring_axes(mode), _bytes(back, shape), f"{op.name} {RETURNS}", compute.phase
                ),
            ),
        )
    ]


_Form = Callable[[Attention, Compute, LocalShape, Mode], list[Item]]
_FORMS: dict[ContextForm, _Form] = {
    "ring": _ring,
    "rsa": _ring,
    "all-gather": _all_gather,
    "token-ring": _token_ring,
}
