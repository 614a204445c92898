"""Queries, keys and values of latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1.2), uncompressed.

Sizes: B sequences, L positions, D hidden, H heads, N elements of a head (those without rotation, then rotary ones),
C compressed elements, R rotary ones.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from meshwright.model.architecture import LatentAttention
from meshwright.model.rotary import Rotary
from meshwright.runtime.reference.elementwise import linear
from meshwright.runtime.reference.softmax_attention import rotated


def latent_heads(
    latent: LatentAttention,
    rotary: Rotary,
    tensors: Mapping[str, Tensor],
    name: str,
    norm: Callable[[str, Tensor], Tensor],
    x_BLD: Tensor,
    begins_BL: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return rotated queries and keys, and values, by heads.

    ``norm`` takes a tensor's name, ``name`` is the attention's.
    """
    if latent.q_rank is None:
        q_BLN = linear(tensors, f"{name}.q_proj", x_BLD)
    else:
        q_BLN = linear(tensors, f"{name}.q_a_proj", x_BLD)
        q_BLN = linear(tensors, f"{name}.q_b_proj", norm(f"{name}.q_a_layernorm", q_BLN))
    width = latent.qk_nope_dim + latent.qk_rope_dim
    q_BLHN = q_BLN.unflatten(2, (-1, width))
    plain_BLHN, turning_BLHR = q_BLHN.split((latent.qk_nope_dim, latent.qk_rope_dim), dim=3)
    q_BLHN = torch.cat((plain_BLHN, rotated(turning_BLHR, rotary, begins_BL)), dim=3)

    rows_BLC = linear(tensors, f"{name}.kv_a_proj_with_mqa", x_BLD)
    rows_BLC, turning_BLR = rows_BLC.split((latent.kv_rank, latent.qk_rope_dim), dim=2)
    kv_BLHN = linear(tensors, f"{name}.kv_b_proj", norm(f"{name}.kv_a_layernorm", rows_BLC))
    kv_BLHN = kv_BLHN.unflatten(2, (-1, latent.qk_nope_dim + latent.v_dim))
    k_BLHN, v_BLHN = kv_BLHN.split((latent.qk_nope_dim, latent.v_dim), dim=3)
    rotated_BLHR = rotated(turning_BLR[:, :, None], rotary, begins_BL).expand(-1, -1, k_BLHN.shape[2], -1)
    return q_BLHN, torch.cat((k_BLHN, rotated_BLHR), dim=3), v_BLHN
