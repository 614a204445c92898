"""Collectives of linear attention over cp: the states of all pieces of a sequence, in every form.

A rank makes of each piece of the sequence that it has one state, as if nothing stood before it: head_dim² for each
head. All ranks gather all states, and each adds up those that stand before its own pieces, decayed by how far they are
from them; backward the gradients of what entered come together in the same way, and those behind a piece are added up.
So pieces need not lie in the order of the ranks, documents end a sum where they begin, and no rank waits for another
one's: LASP-2 (arXiv 2502.07563). LASP itself (arXiv 2404.02882) sends one state from rank to rank, n − 1 times one
after the other, and with head and tail twice that. What is sent does not depend on the length of the sequence in
either. States travel and are kept in 4 bytes.

The norm behind it is over all heads: one number for each row is summed over tp, in 4 bytes.
"""

import numpy as np

from meshwright.model.operators.operator_types import GatedNorm, LinearAttention
from meshwright.program.local_shape import STATISTIC_BYTES, LocalShape, Mode, Number
from meshwright.program.pass_items import Collective, Compute, Item, Phase


def most_pieces(shape: LocalShape, mode: Mode) -> Number:
    """Return the most pieces of a rank: two with head and tail, unless an even number of ranks shares them."""
    two = mode.context.pieces == "head-tail"
    return 1 + two * (np.asarray(shape.ring) > 1) * (np.asarray(shape.ulysses) % 2)


def state_bytes(op: LinearAttention, shape: LocalShape, mode: Mode) -> Number:
    """Of the states of one rank's pieces, of its heads; none where it has whole sequences."""
    states = most_pieces(shape, mode) * shape.micro_batch * op.heads / shape.tp
    return STATISTIC_BYTES * op.head_dim**2 * states * (np.asarray(shape.cp) > 1)


def gathered_bytes(op: LinearAttention, shape: LocalShape, mode: Mode) -> Number:
    """Of the states of all pieces."""
    return shape.cp * state_bytes(op, shape, mode)


def linear_attention_with_exchanges(
    op: LinearAttention, shape: LocalShape, mode: Mode, phase: Phase
) -> list[Item]:
    """Linear attention and the exchange before it: forward, or the gradient of the input."""
    gathered = gathered_bytes(op, shape, mode)
    return [Collective("all-gather", ("cp",), gathered, op.name, phase), Compute(op, phase)]


def sharded_norm_with_exchange(op: GatedNorm, shape: LocalShape, phase: Phase) -> list[Item]:
    """Return a norm cut over tp and its all-reduce of rows' sums of squares; backward, of products.

    A rank has whole parts of a row that is normed in parts.
    """
    if op.parts > 1:
        return [Compute(op, phase)]
    sums = STATISTIC_BYTES * shape.tokens
    return [Collective("all-reduce", ("tp",), sums, op.name, phase), Compute(op, phase)]
