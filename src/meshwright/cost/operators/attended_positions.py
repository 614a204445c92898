"""The mean number of positions that a token attends to in sequences packed with documents.

A row at x of a document that is not cut attends to x positions. Otherwise a cut falls anywhere alike. Then a row has, d
positions before it, its own document with S(d) = Σ max(0, l − d) / Σ l, and attends in the mean to

    A(p) = ∫₀ᵖ S(d) dd = Σ (l·m − m²/2) / Σ l,   m = min(p, l),

where p is its place in the sequence, or a window if that is shorter. Over all rows of a sequence without a window this
is Σ (l²/2 − l³/6s) / Σ l for documents no longer than s: the mean of squares, less what cuts take away. One endless
document gives back s/2. What is ignored: with g, the largest common divisor of Σ l and s, cuts fall only on multiples
of g. It is the mean over sequences: some have more to attend to, and a step waits for the rank that has most.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.model.graph import attended_positions
from meshwright.model.operators.operator_types import Attention, Operator
from meshwright.workload.encoder_lengths import NO_ENCODER, EncoderLengths
from meshwright.workload.packed_documents import Documents

Rows = float | NDArray[Any]
"""A place between two rows, or one for each plan of an array."""


def mean_attended_positions(
    op: Operator,
    seq_len: int,
    causal: bool,
    documents: Documents | None,
    encoder: EncoderLengths = NO_ENCODER,
) -> float:
    """Mean number of positions a token attends to; without the causal discount twice as many, or two windows."""
    if documents is None:
        return attended_positions(op, seq_len, causal, encoder)
    window = op.window if isinstance(op, Attention) else None
    if causal:
        return float(mean_attended_positions_of_rows(documents, seq_len, window))
    whole = 2 * float(mean_attended_positions_of_rows(documents, seq_len, None))
    return whole if window is None else min(whole, 2 * window)


def mean_attended_positions_of_rows(
    documents: Documents, seq_len: int, window: int | None, first: Rows = 0.0
) -> Rows:
    """Mean number of positions that the rows from ``first`` to the end of a sequence attend to."""
    until = _until_uncut if documents.uncut(seq_len) else _until_cut
    reach = seq_len if window is None else min(window, seq_len)
    return (until(documents, float(seq_len), reach) - until(documents, first, reach)) / (seq_len - first)


def _until_cut(documents: Documents, row: Rows, reach: int) -> Rows:
    """Return the positions that all rows before one attend to: ∫₀ʳ A(p) dp, A constant from ``reach`` on."""
    lengths, near = _lengths(documents), np.minimum(row, reach)
    inside = np.minimum(np.expand_dims(near, -1), lengths)
    grown = lengths * inside**2 / 2 - inside**3 / 6 + (np.expand_dims(near, -1) - inside) * lengths**2 / 2
    most = np.minimum(reach, lengths)
    rate = (lengths * most - most**2 / 2).sum() / documents.total
    return grown.sum(-1) / documents.total + (row - near) * rate


def _until_uncut(documents: Documents, row: Rows, reach: int) -> Rows:
    """Return the same where documents follow each other uncut."""
    turns, rest = np.divmod(row, documents.total)
    return turns * _of_turn(documents, float(documents.total), reach) + _of_turn(documents, rest, reach)


def _of_turn(documents: Documents, row: Rows, reach: int) -> Rows:
    """Return the same within one turn of all documents."""
    lengths = _lengths(documents)
    inside = np.clip(np.expand_dims(row, -1) - (np.cumsum(lengths) - lengths), 0, lengths)
    near = np.minimum(inside, reach)
    return (near**2 / 2 + (inside - near) * reach).sum(-1)


def _lengths(documents: Documents) -> NDArray[np.float64]:
    return np.array(documents.lengths, np.float64)
