"""A model of the same structure and arithmetic with small sizes: for proofs, in which only structure matters.

Kept: the family's norms, biases, activation, tying, kind of positions, caps and multipliers, whether heads are grouped,
how a head's width relates to the stream's, which part of a head is rotated. Layers are a selection of the model's own,
in order, so that every kind of layer (windows, rotations) is there. Lengths (windows, original positions of a rotation)
shrink with the sequence, so that a window stays shorter than it and a stretched rotation stays stretched.

Left out: dropout, and of more than ``KINDS`` kinds of layers those that come last.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from meshwright.model.architecture import Architecture
from meshwright.model.blocks import build_graph
from meshwright.model.graph import ModelGraph
from meshwright.model.numerics import Numerics
from meshwright.model.rotary import Linear, LongRope, Rotary, Scaling, slopes_of

KINDS = 4
HEAD_DIM = 8
WIDTH = 20
"""Feed-forward elements per tp rank."""
VOCABULARY = 61
"""A prime: no degree divides it."""
MOST_QUERIES = 3
"""Query heads per key-value head, where they are grouped."""


def layer_kinds(arch: Architecture) -> int:
    """How many kinds of layers a small model of this architecture must have."""
    return min(KINDS, len(_firsts(arch)))


def shrunk_model(model: ModelGraph, *, layers: int, tp: int, seq_len: int, full_seq_len: int) -> ModelGraph:
    """A dense model of ``layers`` layers whose widths ``tp`` divides, for sequences of ``seq_len`` tokens.

    ``full_seq_len`` is the length that the model's windows and rotations are meant for.
    """
    arch = model.architecture
    chosen = _chosen(arch, layers)
    lengths = _Lengths(seq_len, full_seq_len)
    kv_heads = 1 if arch.kv_heads == 1 else tp * (2 if arch.kv_heads > tp else 1)
    heads = kv_heads * min(MOST_QUERIES, arch.heads // arch.kv_heads)
    narrow = arch.hidden != arch.heads * arch.head_dim
    small = replace(
        arch,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=HEAD_DIM,
        v_head_dim=HEAD_DIM,
        hidden=heads * HEAD_DIM + (HEAD_DIM * tp if narrow else 0),
        intermediate=WIDTH * tp,
        vocab=VOCABULARY,
        windows=lengths.windows(arch, chosen),
        max_positions=seq_len + 3,
        dropout=False,
        numerics=_numerics(arch, chosen, heads, lengths),
    )
    return build_graph(small)


def _firsts(arch: Architecture) -> list[int]:
    """The first layer of each kind: equal window, equal rotation."""
    rotary = arch.numerics.rotary or (None,) * arch.layers
    kinds: dict[object, int] = {}
    for layer, kind in enumerate(zip(arch.windows, rotary, strict=True)):
        kinds.setdefault(kind, layer)
    return list(kinds.values())


def _chosen(arch: Architecture, layers: int) -> list[int]:
    """Layers of the model that stand for it: one of each kind, the others spread over it; repeated where too few."""
    firsts = _firsts(arch)[: min(KINDS, layers)]
    spread = [round(i * (arch.layers - 1) / max(1, layers - 1)) for i in range(layers)]
    return sorted(firsts + spread[: layers - len(firsts)])


class _Lengths:
    """Lengths of a model for a shorter sequence, in the same relation to it."""

    def __init__(self, seq_len: int, full: int) -> None:
        self.seq_len, self.full = seq_len, full

    def windows(self, arch: Architecture, chosen: Sequence[int]) -> tuple[int | None, ...]:
        """Windows that differ stay different, and all are shorter than the sequence."""
        distinct = sorted({window for window in arch.windows if window is not None})
        small = {window: max(2, self.seq_len // 3 - len(distinct) + i) for i, window in enumerate(distinct)}
        return tuple(None if arch.windows[i] is None else small[arch.windows[i]] for i in chosen)  # type: ignore[index]

    def original(self, positions: int) -> int:
        """A length that the sequence exceeds if and only if it did."""
        if positions < self.full:
            return max(2, min(self.seq_len - 1, positions * self.seq_len // self.full))
        return ceil(positions * self.seq_len / self.full)


def _numerics(arch: Architecture, chosen: Sequence[int], heads: int, lengths: _Lengths) -> Numerics:
    numerics = arch.numerics
    if numerics.refused:
        return numerics
    growth = numerics.query_growth
    return replace(
        numerics,
        rotary=tuple(_rotary(numerics.rotary[layer], arch.head_dim, lengths) for layer in chosen),
        attention_scales=tuple(
            numerics.attention_scales[layer] * (arch.head_dim / HEAD_DIM) ** 0.5 for layer in chosen
        ),
        query_growth=growth and replace(growth, positions=max(1, lengths.seq_len // 3)),
        alibi_slopes=slopes_of(heads) if numerics.alibi_slopes else (),
    )


def _rotary(rotary: Rotary | None, head_dim: int, lengths: _Lengths) -> Rotary | None:
    """The same share of a smaller head."""
    if rotary is None:
        return None
    dim = max(2, rotary.dim * HEAD_DIM // head_dim // 2 * 2)
    return replace(rotary, dim=dim, scaling=_scaling(rotary.scaling, rotary.dim // 2, dim // 2, lengths))


def _scaling(scaling: Scaling | None, pairs: int, small: int, lengths: _Lengths) -> Scaling | None:
    if scaling is None or isinstance(scaling, Linear):
        return scaling
    original = lengths.original(scaling.original_positions)
    if not isinstance(scaling, LongRope):
        return replace(scaling, original_positions=original)
    kept = [pair * pairs // small for pair in range(small)]
    return replace(
        scaling,
        original_positions=original,
        short=tuple(scaling.short[pair] for pair in kept),
        long=tuple(scaling.long[pair] for pair in kept),
    )
