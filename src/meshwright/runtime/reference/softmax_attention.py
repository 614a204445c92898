"""Softmax attention with an explicit mask, grouped key-value heads, rotation, soft cap, ALiBi and sinks.

Each position has the begin of its document: it attends to no position before that, and positions count from there.
Sizes: B sequences, L positions (i of the query, j of the key), H heads, K key-value heads, N elements of a head.
"""

import torch
from torch import Tensor

from meshwright.model.numerics import Numerics
from meshwright.model.rotary import Rotary
from meshwright.runtime.reference.elementwise import capped


def places(begins_BL: Tensor) -> Tensor:
    """Return each token's position in its document."""
    return torch.arange(begins_BL.shape[1]) - begins_BL


def positioned(
    numerics: Numerics,
    layer: int,
    q_BLHN: Tensor,
    k_BLKN: Tensor,
    begins_BL: Tensor,
    turns_LP: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return queries and keys with positions applied: rotated, and queries scaled for models that do so.

    ``turns_LP``: the position that each pair turns with; None: the position in the document.
    """
    rotary, growth = numerics.rotary[layer], numerics.query_growth
    if rotary is not None:
        q_BLHN, k_BLKN = (rotated(x, rotary, begins_BL, turns_LP) for x in (q_BLHN, k_BLKN))
    if growth is not None:
        steps_BL = torch.floor(places(begins_BL).to(q_BLHN) / growth.positions)
        q_BLHN = q_BLHN * (1 + growth.beta * torch.log(1 + steps_BL))[..., None, None]
    return q_BLHN, k_BLKN


def softmax_attention(
    numerics: Numerics,
    layer: int,
    window: int | None,
    q_BLHN: Tensor,
    k_BLKN: Tensor,
    v_BLKN: Tensor,
    begins_BL: Tensor,
    sinks_H: Tensor | None = None,
    bias_HLL: Tensor | None = None,
) -> Tensor:
    """Return Σ_j softmax_j(score of i and j) · v_j over the last ``window`` positions up to i.

    None: the whole document. A sink adds one score per head, with a value of zero; ``bias_HLL`` is added to scores.
    """
    length, groups = q_BLHN.shape[1], q_BLHN.shape[2] // k_BLKN.shape[2]
    position_L = torch.arange(length, dtype=q_BLHN.dtype)
    k_BLHN, v_BLHN = (x.repeat_interleave(groups, dim=2) for x in (k_BLKN, v_BLKN))
    scores_BHLL = torch.einsum("bihn,bjhn->bhij", q_BLHN, k_BLHN) * numerics.attention_scales[layer]
    scores_BHLL = capped(scores_BHLL, numerics.attention_soft_cap)
    distance_LL = position_L[:, None] - position_L[None, :]  # i − j
    if numerics.alibi_slopes:
        slope_H = torch.tensor(numerics.alibi_slopes, dtype=q_BLHN.dtype)
        scores_BHLL = scores_BHLL - slope_H[:, None, None] * distance_LL
    if bias_HLL is not None:
        scores_BHLL = scores_BHLL + bias_HLL
    hidden_LL = (distance_LL < 0) | (distance_LL >= (length if window is None else window))
    foreign_BLL = torch.arange(length) < begins_BL[..., None]
    scores_BHLL = scores_BHLL.masked_fill((hidden_LL | foreign_BLL)[:, None], -torch.inf)
    if sinks_H is not None:
        sink_BHL1 = sinks_H[:, None, None].expand(len(scores_BHLL), -1, length, 1)
        scores_BHLL = torch.cat((scores_BHLL, sink_BHL1), dim=-1)
    weights_BHLL = scores_BHLL.softmax(dim=-1)[..., :length]
    return torch.einsum("bhij,bjhn->bihn", weights_BHLL, v_BLHN)


def rotated(x_BLHN: Tensor, rotary: Rotary, begins_BL: Tensor, turns_LP: Tensor | None = None) -> Tensor:
    """Rotate each pair (a, b) of a head's first ``rotary.dim`` elements: (a·cos − b·sin, b·cos + a·sin)."""
    length, dim = x_BLHN.shape[1], rotary.dim
    frequencies = torch.tensor(rotary.frequencies(length), dtype=torch.float64)
    turns = places(begins_BL)[..., None, None] if turns_LP is None else turns_LP[:, None]
    angle = turns.to(torch.float64) * frequencies
    cos, sin = (f(angle).mul(rotary.attention_factor).to(x_BLHN.dtype) for f in (torch.cos, torch.sin))
    turning, rest = x_BLHN[..., :dim], x_BLHN[..., dim:]
    if rotary.interleaved:
        a, b = turning[..., 0::2], turning[..., 1::2]
        rotated = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
    else:
        a, b = turning[..., : dim // 2], turning[..., dim // 2 :]
        rotated = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    return torch.cat((rotated, rest), dim=-1)
