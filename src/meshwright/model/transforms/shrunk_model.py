"""Shrink a model to small sizes with the same structure and arithmetic, for proofs, in which only structure matters.

Kept: the family's norms, biases, activation, tying, kind of positions, caps and multipliers, whether heads are grouped,
the ratio of a head's width to the stream's, the rotated part of a head, the routers' rules. Layers are a
selection of the model's own, in order, so that every kind of layer (windows, rotations, experts) occurs. Lengths
(windows, original positions of a rotation) shrink with the sequence, so that a window stays shorter than it and a
stretched rotation stays stretched.

Left out: dropout; of more than ``KINDS`` kinds of layers the last ones; all but ``FURTHER`` multi-token-prediction
layers.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import ceil, lcm

from meshwright.model.architecture import Architecture, Experts, LatentAttention, StateSpaceLayers
from meshwright.model.graph import ModelGraph
from meshwright.model.numerics import HeadDecay, Numerics
from meshwright.model.operators.blocks import build_graph
from meshwright.model.rotary import Linear, LongRope, Rotary, Scaling, alibi_head_slopes
from meshwright.model.router import Groups
from meshwright.model.transforms.shrunk_encoder import shrunk_encoder, small_sections

KINDS = 4
FURTHER = 2
HEAD_DIM = 8
WIDTH = 20
"""Feed-forward elements per tp rank."""
VOCABULARY = 61
"""A prime: no degree divides it."""
MOST_QUERIES = 3
"""Query heads per key-value head with grouped heads; one less if the model has linear attention."""
LATENT = LatentAttention(q_rank=16, kv_rank=12, qk_nope_dim=8, qk_rope_dim=4, v_dim=8)
EXPERTS = 8
"""Number of experts, or a few more if ep does not divide it."""
EXPERTS_PER_TOKEN = 2
EXPERT_WIDTH = 4
"""Feed-forward elements of an expert per etp rank."""
GROUPS = 4
BLOCK = 3
"""Positions that a kernel of linear attention or Mamba-2 processes at a time."""
STATE = 6
"""Elements of a head's B and C."""


def layer_kinds(arch: Architecture) -> int:
    """Return the number of kinds of layers that a small model of this architecture must have."""
    return min(KINDS, len(_firsts(arch))) + min(FURTHER, arch.next_token_layers)


def shrunk_model(
    model: ModelGraph,
    *,
    layers: int,
    last: int = 1,
    tp: int,
    seq_len: int,
    full_seq_len: int,
    ep: int = 1,
    etp: int = 1,
    block: int = 1,
) -> ModelGraph:
    """Return a model of ``layers`` layers whose widths ``tp`` divides, for sequences of ``seq_len`` tokens.

    Some of the ``last`` layers, those of one stage, are for multi-token prediction if the model has it. ``ep`` divides
    its experts, ``etp`` an expert's width; ``full_seq_len`` is the length that the model's windows and
    rotations are meant for. ``block`` divides the inputs of every matrix of a layer on its rank.
    """
    arch = model.architecture
    wide = partial(_multiple, block)
    further = min(FURTHER, arch.next_token_layers, last)
    chosen = [*_chosen(arch, layers - further), *range(arch.layers - further, arch.layers)]
    lengths = _Lengths(seq_len, full_seq_len)
    latent = arch.latent and replace(
        LATENT,
        q_rank=arch.latent.q_rank and wide(LATENT.q_rank or 1),
        kv_rank=wide(LATENT.kv_rank),
        qk_nope_dim=wide(LATENT.qk_nope_dim),
        v_dim=wide(LATENT.v_dim),
    )
    head_dim = latent.qk_nope_dim + latent.qk_rope_dim if latent else wide(HEAD_DIM)
    moe = _experts(arch.moe, chosen, tp, ep, etp, wide(EXPERT_WIDTH)) if arch.moe else None
    kv_heads = 1 if arch.kv_heads == 1 else tp * (2 if arch.kv_heads > tp else 1)
    queries = MOST_QUERIES - (arch.linear is not None)
    heads = kv_heads * min(queries, arch.heads // arch.kv_heads)
    linear = arch.linear and replace(
        arch.linear, block=BLOCK, layers=tuple(arch.linear.layers[layer] for layer in chosen)
    )
    narrow = arch.hidden != arch.heads * arch.head_dim
    small = replace(
        arch,
        layers=layers,
        next_token_layers=further,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=latent.v_dim if latent else head_dim,
        hidden=wide(heads * head_dim + (HEAD_DIM * tp if narrow else 0)),
        intermediate=wide(WIDTH) * tp if arch.intermediate and not (moe and all(moe.layers)) else 0,
        layer_parts=tuple(arch.layer_parts[layer] for layer in chosen) if arch.layer_parts else (),
        latent=latent,
        moe=moe,
        linear=linear,
        state_space=arch.state_space and _state_space(arch.state_space, chosen, tp, wide(HEAD_DIM)),
        vocab=VOCABULARY,
        encoder=arch.encoder and shrunk_encoder(arch.encoder, tp, wide(WIDTH)),
        windows=lengths.windows(arch, chosen),
        max_positions=seq_len + 3,
        dropout=False,
        numerics=_numerics(arch, chosen, heads, head_dim, lengths),
    )
    return build_graph(small)


def _firsts(arch: Architecture) -> list[int]:
    """Return the first layer of each kind: equal window, equal rotation, the same parts, experts or none."""
    rotary = arch.numerics.rotary or (None,) * arch.layers
    routed = arch.moe.layers if arch.moe else (False,) * arch.layers
    kinds: dict[object, int] = {}
    for layer, kind in enumerate(zip(arch.windows, rotary, arch.parts, arch.mixers, routed, strict=True)):
        if layer < arch.main_layers:
            kinds.setdefault(kind, layer)
    return list(kinds.values())


def _chosen(arch: Architecture, layers: int) -> list[int]:
    """Return layers that represent the model: one of each kind, the others evenly spaced, repeated if too few."""
    firsts = _firsts(arch)[: min(KINDS, layers)]
    spread = [round(i * (arch.main_layers - 1) / max(1, layers - 1)) for i in range(layers)]
    return sorted(firsts + spread[: layers - len(firsts)])


class _Lengths:
    """Lengths of a model for a shorter sequence, in the same relation to it."""

    def __init__(self, seq_len: int, full: int) -> None:
        self.seq_len, self.full = seq_len, full

    def windows(self, arch: Architecture, chosen: Sequence[int]) -> tuple[int | None, ...]:
        """Return windows shorter than the sequence; different ones stay different."""
        distinct = sorted({window for window in arch.windows if window is not None})
        small = {window: max(2, self.seq_len // 3 - len(distinct) + i) for i, window in enumerate(distinct)}
        return tuple(None if arch.windows[i] is None else small[arch.windows[i]] for i in chosen)  # type: ignore[index]

    def original(self, positions: int) -> int:
        """Return a length that the shorter sequence exceeds if and only if the full one did."""
        if positions < self.full:
            return max(2, min(self.seq_len - 1, positions * self.seq_len // self.full))
        return ceil(positions * self.seq_len / self.full)


def _multiple(block: int, size: int) -> int:
    """Return the least multiple of a block that is no less than a size."""
    return -(-size // block) * block


def _experts(moe: Experts, chosen: Sequence[int], tp: int, ep: int, etp: int, width: int) -> Experts:
    """Return a few experts, two per token if the model has more than one per token."""
    multiple = lcm(ep, GROUPS)
    return replace(
        moe,
        experts=multiple * ceil(EXPERTS / multiple),
        experts_per_token=min(moe.experts_per_token, EXPERTS_PER_TOKEN),
        intermediate=width * etp,
        shared_intermediate=width * tp if moe.shared_intermediate else 0,
        layers=tuple(moe.layers[layer] for layer in chosen),
    )


def _state_space(layers: StateSpaceLayers, chosen: Sequence[int], tp: int, head_dim: int) -> StateSpaceLayers:
    """Return two heads for each tp rank, with a small state; filters stay as long as they are."""
    return replace(
        layers,
        heads=2 * tp,
        groups=min(layers.groups, 2 * tp),
        head_dim=head_dim,
        state=STATE,
        block=BLOCK,
        layers=tuple(layers.layers[layer] for layer in chosen),
    )


def _groups(groups: Groups) -> Groups:
    """Return groups of which half can be chosen, unless all can."""
    chosen = GROUPS // 2 if groups.chosen < groups.count else GROUPS
    return replace(groups, count=GROUPS, chosen=chosen)


def _numerics(
    arch: Architecture, chosen: Sequence[int], heads: int, head_dim: int, lengths: _Lengths
) -> Numerics:
    numerics = arch.numerics
    if numerics.refused:
        return numerics
    growth, routing = numerics.query_growth, numerics.routing
    smaller = 1.0 if arch.positions == "relative" else (arch.head_dim / head_dim) ** 0.5
    rotary_dim = arch.latent.qk_rope_dim if arch.latent else arch.head_dim
    width = LATENT.qk_rope_dim if arch.latent else head_dim
    return replace(
        numerics,
        rotary=tuple(_rotary(numerics.rotary[layer], width, rotary_dim, lengths) for layer in chosen),
        attention_scales=tuple(numerics.attention_scales[layer] * smaller for layer in chosen),
        attention_mixing=tuple(numerics.mixing_of_attention(layer) for layer in chosen),
        decay=numerics.decay and HeadDecay(heads=heads, layers=len(chosen)),
        query_growth=growth and replace(growth, positions=max(1, lengths.seq_len // 3)),
        alibi_slopes=alibi_head_slopes(heads) if numerics.alibi_slopes else (),
        rotary_sections=small_sections(numerics.rotary_sections, width // 2),
        routing=routing and replace(routing, groups=routing.groups and _groups(routing.groups)),
    )


def _rotary(rotary: Rotary | None, width: int, full_width: int, lengths: _Lengths) -> Rotary | None:
    """Rotate the same fraction of a head of ``width`` elements instead of ``full_width``."""
    if rotary is None:
        return None
    dim = max(2, rotary.dim * width // full_width // 2 * 2)
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
