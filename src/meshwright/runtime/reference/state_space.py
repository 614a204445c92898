"""Mamba-2 written out: y_i = Σ_j exp(Σ_{j<k≤i} Δ_k·A)·(C_i·B_j)·Δ_j·x_j + D·x_i over j ≤ i of the same document.

This is arXiv 2405.21060, eq. 3. A causal filter precedes it, the norm of the gated result follows. Sizes: B sequences,
L positions, D hidden, H heads, P elements of a head, S elements of a state, E elements of all heads, K channels of a
filter, J its length.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from meshwright.model.architecture import Architecture
from meshwright.runtime.reference.elementwise import linear, normed


def state_space_output(
    arch: Architecture, tensors: Mapping[str, Tensor], layer: int, n_BLD: Tensor, begins_BL: Tensor
) -> Tensor:
    """Return a layer's Mamba-2 of the normed stream, before it is added to the stream."""
    layers, name = arch.state_space, f"layers.{layer}.mamba"
    assert layers is not None
    gate_BLE, x_BLE, bc_BLK, dt_BLH = (
        linear(tensors, f"{name}.{which}_proj", n_BLD) for which in ("gate", "x", "bc", "dt")
    )
    x_BLHP = filtered(tensors, f"{name}.x_conv", x_BLE, begins_BL).unflatten(2, (layers.heads, -1))
    b_BLS, c_BLS = filtered(tensors, f"{name}.bc_conv", bc_BLK, begins_BL).chunk(2, -1)
    dt_BLH = functional.softplus(dt_BLH + tensors[f"{name}.dt_bias"])
    decay_BLH = -dt_BLH * torch.exp(tensors[f"{name}.A_log"])
    y_BLHP = recurred(decay_BLH, x_BLHP * dt_BLH[..., None], b_BLS, c_BLS, begins_BL)
    y_BLE = (y_BLHP + x_BLHP * tensors[f"{name}.D"][:, None]).flatten(2)
    y_BLE = normed(y_BLE * functional.silu(gate_BLE), centred=False, epsilon=arch.norm_epsilon)
    return linear(tensors, f"{name}.out_proj", y_BLE * tensors[f"{name}.norm.weight"])


def filtered(tensors: Mapping[str, Tensor], name: str, x_BLK: Tensor, begins_BL: Tensor) -> Tensor:
    """Return silu of each channel's causal filter."""
    weight_K1J, bias_K = tensors[f"{name}.weight"], tensors.get(f"{name}.bias")
    length = weight_K1J.shape[-1]
    padded_BLK = functional.pad(x_BLK, (0, 0, length - 1, 0))
    first_L = torch.arange(x_BLK.shape[1]) - length + 1
    terms = [
        padded_BLK[:, at : at + len(first_L)] * weight_K1J[:, 0, at] * (first_L + at >= begins_BL)[..., None]
        for at in range(length)
    ]
    return functional.silu(sum(terms, start=torch.zeros_like(x_BLK) if bias_K is None else bias_K))


def recurred(decay_BLH: Tensor, x_BLHP: Tensor, b_BLS: Tensor, c_BLS: Tensor, begins_BL: Tensor) -> Tensor:
    """Return the decayed sum over all positions of a document up to each; ``decay`` is the logarithm of a step's."""
    total_BHL = decay_BLH.cumsum(1).transpose(1, 2)
    place_L = torch.arange(total_BHL.shape[-1])
    seen_BLL = (place_L <= place_L[:, None]) & (place_L >= begins_BL[..., None])
    between_BHLL = (total_BHL[..., :, None] - total_BHL[..., None, :]).masked_fill(
        ~seen_BLL[:, None], -torch.inf
    )
    scores_BLL = torch.einsum("bis,bjs->bij", c_BLS, b_BLS)
    return torch.einsum("bij,bhij,bjhp->bihp", scores_BLL, between_BHLL.exp(), x_BLHP)
