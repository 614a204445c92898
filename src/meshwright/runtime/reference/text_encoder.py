"""T5's encoder, its scores by relative position, and attention of the decoder to its result (arXiv 1910.10683).

Sizes: B sequences, S encoder tokens, L decoder tokens, D hidden, H heads, N elements of a head, Q and K positions of
queries and keys.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from meshwright.model.architecture import Architecture
from meshwright.model.encoder import TextEncoder
from meshwright.model.named_tensors import TOKEN_TABLE
from meshwright.model.numerics import Numerics
from meshwright.runtime.reference.elementwise import linear
from meshwright.runtime.reference.feedforward import dense

Norm = Callable[[str, Tensor], Tensor]


def encoded_text(
    arch: Architecture, numerics: Numerics, tensors: Mapping[str, Tensor], norm: Norm, tokens_BS: Tensor
) -> Tensor:
    """Return the encoder's normed result for token ids; every token attends to all of its sequence."""
    assert isinstance(arch.encoder, TextEncoder)
    bias_HSS = encoder_bias(arch.encoder, tensors, tokens_BS.shape[1])
    x_BSD = tensors[TOKEN_TABLE][tokens_BS]
    for layer in range(arch.encoder.layers):
        unit = f"encoder.{layer}"
        n_BSD = norm(f"{unit}.input_layernorm", x_BSD)
        x_BSD = x_BSD + _attended(arch, tensors, f"{unit}.self_attn", n_BSD, n_BSD, bias_HSS)
        n_BSD = norm(f"{unit}.post_attention_layernorm", x_BSD)
        x_BSD = x_BSD + dense(arch, numerics, tensors, f"{unit}.mlp", n_BSD)
    return norm("encoder_end.norm", x_BSD)


def cross_attended(
    arch: Architecture, tensors: Mapping[str, Tensor], layer: int, x_BLD: Tensor, encoded_BSD: Tensor
) -> Tensor:
    """Return a decoder layer's attention of normed tokens to every token of the encoder, without positions."""
    return _attended(arch, tensors, f"layers.{layer}.cross_attn", x_BLD, encoded_BSD, None)


def encoder_bias(encoder: TextEncoder, tensors: Mapping[str, Tensor], length: int) -> Tensor:
    """Return the score that is added for each head, query and key of the encoder."""
    half = encoder.buckets // 2
    rows = [
        [
            bucket(abs(key - query), half, encoder.max_distance) + (half if key > query else 0)
            for key in range(length)
        ]
        for query in range(length)
    ]
    return tensors["embed.encoder_attention_bias.weight"][torch.tensor(rows)].permute(2, 0, 1)


def decoder_bias(encoder: TextEncoder, tensors: Mapping[str, Tensor], length: int) -> Tensor:
    """Return the score that is added for each head, query and key of the decoder; keys ahead are masked later."""
    rows = [
        [bucket(max(query - key, 0), encoder.buckets, encoder.max_distance) for key in range(length)]
        for query in range(length)
    ]
    return tensors["embed.attention_bias.weight"][torch.tensor(rows)].permute(2, 0, 1)


def bucket(distance: int, buckets: int, farthest: int) -> int:
    """Return the bucket of distance d: d below e = buckets/2, then e + ⌊(buckets − e) · log(d/e) / log(farthest/e)⌋.

    The last bucket holds all greater distances. Powers of whole numbers are compared, so that nothing is rounded.
    """
    exact = buckets // 2
    if distance < exact:
        return distance
    wide = buckets - exact
    return exact + max(
        step for step in range(wide) if distance**wide * exact**step >= farthest**step * exact**wide
    )


def _attended(
    arch: Architecture,
    tensors: Mapping[str, Tensor],
    name: str,
    x_BQD: Tensor,
    seen_BKD: Tensor,
    bias_HQK: Tensor | None,
) -> Tensor:
    """Return the output projection of unmasked and unscaled attention of ``x`` to ``seen``."""
    q_BQHN, k_BKHN, v_BKHN = (
        linear(tensors, f"{name}.{which}_proj", rows).unflatten(2, (-1, arch.head_dim))
        for which, rows in (("q", x_BQD), ("k", seen_BKD), ("v", seen_BKD))
    )
    scores_BHQK = torch.einsum("bqhn,bkhn->bhqk", q_BQHN, k_BKHN)
    if bias_HQK is not None:
        scores_BHQK = scores_BHQK + bias_HQK
    y_BQHN = torch.einsum("bhqk,bkhn->bqhn", scores_BHQK.softmax(dim=-1), v_BKHN)
    return linear(tensors, f"{name}.o_proj", y_BQHN.flatten(2))
