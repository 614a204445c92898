"""Linear attention written out: o_i = Σ_j exp(−rate·(i − j))·(q_i·k_j)·v_j over j ≤ i of the same document.

The gated norm over all heads follows. Sizes: B sequences, L positions, D hidden, H heads, N elements of a head.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from meshwright.model.architecture import Architecture
from meshwright.model.numerics import Numerics
from meshwright.runtime.reference.elementwise import ACTIVATIONS, linear, normed


def linear_attention_output(
    arch: Architecture,
    numerics: Numerics,
    tensors: Mapping[str, Tensor],
    layer: int,
    x_BLD: Tensor,
    begins_BL: Tensor,
) -> Tensor:
    """Return a layer's linear attention, before it is added to the stream."""
    name = f"layers.{layer}.linear_attn"
    assert numerics.decay is not None
    q_BLHN, k_BLHN, v_BLHN = (
        ACTIVATIONS[numerics.activation](linear(tensors, f"{name}.{which}_proj", x_BLD)).unflatten(
            2, (arch.heads, -1)
        )
        for which in "qkv"
    )
    rates_H = torch.tensor(numerics.decay.rates(layer), dtype=x_BLD.dtype)
    y_BLHN = decayed(rates_H, q_BLHN, k_BLHN, v_BLHN, begins_BL)
    y_BLD = normed(y_BLHN.flatten(2), centred=False, epsilon=numerics.linear_norm_epsilon)
    y_BLD = y_BLD * tensors[f"{name}.norm.weight"]
    gate_BLD = torch.sigmoid(linear(tensors, f"{name}.gate_proj", x_BLD))
    return linear(tensors, f"{name}.o_proj", gate_BLD * y_BLD)


def decayed(rates_H: Tensor, q_BLHN: Tensor, k_BLHN: Tensor, v_BLHN: Tensor, begins_BL: Tensor) -> Tensor:
    """Return the decayed sum over all positions of a document up to each."""
    place_L = torch.arange(q_BLHN.shape[1])
    distance_LL = place_L[:, None] - place_L
    decay_HLL = torch.exp(-rates_H[:, None, None] * distance_LL.clamp(min=0))
    seen_BLL = (distance_LL >= 0) & (place_L >= begins_BL[..., None])
    scores_BHLL = torch.einsum("bihn,bjhn->bhij", q_BLHN, k_BLHN) * decay_HLL * seen_BLL[:, None]
    return torch.einsum("bhij,bjhn->bihn", scores_BHLL, v_BLHN)
