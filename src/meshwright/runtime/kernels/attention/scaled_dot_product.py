"""Compute softmax(scores)·V, and its gradient from queries, keys, values, output and one statistic per row.

Three implementations share one signature. On a CPU torch's flash kernel returns the statistic and reads it in the
backward pass, and never materialises the scores. Elsewhere torch's own choice of kernel runs forward, and again under
autograd for the gradient. Soft caps, which no kernel supports, are computed from the scores themselves:
P = exp(S − L), dV = PᵀdO, dS = P∘(dO·Vᵀ − Σ dO∘O), times the cap's slope; dQ = dS·K, dK = dSᵀ·Q (Dao et al., arXiv
2205.14135, appendix B.2).

A sink adds one score to every row of a head, for a key whose value is zero. With it L becomes ln(exp(L) + exp(sink))
and the output shrinks by exp of their difference; the formulas hold, and the sink's gradient is
−Σ exp(sink − L)·Σ dO∘O. Tensors are (batch, heads, sequence, head_dim); with fewer key-value heads each serves several
queries.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Scores:
    """Scores from q·k: multiplied by ``scale``, then soft-capped at ``cap``, then ``mask`` is added.

    Without a mask, ``causal`` hides the upper triangle. ``whole``: the rows attend to nothing else, neither other keys
    nor a sink.
    """

    scale: float
    cap: float | None
    mask: torch.Tensor | None
    causal: bool = True
    whole: bool = True

    @property
    def triangle(self) -> bool:
        """True if only causality hides keys."""
        return self.mask is None and self.causal


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, of: Scores
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output, and each row's statistic: the logarithm of the sum of exponentials."""
    if _has_kernel(q, of):
        out, statistic = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, _as_wide(v, q), 0.0, of.triangle, attn_mask=of.mask, scale=of.scale
        )
        return out[..., : v.shape[-1]], statistic
    if of.cap is None and of.whole:
        return _torchs_choice(q, k, v, of), q.new_empty(0)
    scores, _ = masked_scores(q, k, of)
    statistic = scores.logsumexp(-1)
    weights = torch.exp(scores - statistic[..., None])
    return (weights @ each_query(v, q).to(weights)).to(q), statistic


def with_sinks(
    out: torch.Tensor, statistic: torch.Tensor, sinks: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output and statistic of rows that also attend to a sink."""
    whole = torch.logaddexp(statistic, sinks.to(statistic)[:, None])
    return out * torch.exp(statistic - whole)[..., None].to(out), whole


def sink_gradients(
    g: torch.Tensor, out: torch.Tensor, statistic: torch.Tensor, sinks: torch.Tensor
) -> torch.Tensor:
    """Return the gradient of each head's sink."""
    share = torch.exp(sinks.to(statistic)[:, None] - statistic)
    return -(share * (g.to(statistic) * out).sum(-1)).sum((0, 2))


def attention_gradients(
    g: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    statistic: torch.Tensor,
    of: Scores,
) -> Triple:
    """Return the gradients of queries, keys and values."""
    if _has_kernel(q, of):
        wide = [_as_wide(tensor, q) for tensor in (v, out)]
        dq, dk, dv = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            _as_wide(g, q), q, k, *wide, statistic, 0.0, of.triangle, attn_mask=of.mask, scale=of.scale
        )
        return dq, dk, dv[..., : v.shape[-1]]
    if of.cap is None and of.whole:
        return _torchs_gradients(g, q, k, v, of)
    scores, slope = masked_scores(q, k, of)
    weights = torch.exp(scores - statistic[..., None])
    wide_g = g.to(weights)
    inner = wide_g @ each_query(v, q).to(weights).transpose(-1, -2)
    inner = weights * (inner - (wide_g * out).sum(-1, keepdim=True)) * slope * of.scale
    dq = inner @ each_query(k, q).to(weights)
    dk = shared_gradient(inner.transpose(-1, -2) @ q.to(weights), k)
    dv = shared_gradient(weights.transpose(-1, -2) @ wide_g, v)
    return dq.to(q), dk.to(k), dv.to(v)


def _torchs_choice(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, of: Scores) -> torch.Tensor:
    return scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=of.mask,
        is_causal=of.triangle,
        scale=of.scale,
        enable_gqa=k.shape[1] != q.shape[1],
    )


def _torchs_gradients(
    g: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, of: Scores
) -> Triple:
    with torch.enable_grad():
        inputs = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
        dq, dk, dv = torch.autograd.grad(_torchs_choice(inputs[0], inputs[1], inputs[2], of), inputs, g)
    return dq, dk, dv


def _has_kernel(q: torch.Tensor, of: Scores) -> bool:
    return q.device.type == "cpu" and of.cap is None


def masked_scores(q: torch.Tensor, k: torch.Tensor, of: Scores) -> tuple[torch.Tensor, torch.Tensor | float]:
    """Return the masked scores, and their derivative by q·k·scale."""
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = q.to(wide) @ each_query(k, q).to(wide).transpose(-1, -2) * of.scale
    slope: torch.Tensor | float = 1.0
    if of.cap is not None:
        bent = torch.tanh(scores / of.cap)
        scores, slope = bent * of.cap, 1 - bent * bent
    mask = of.mask
    if mask is None and not of.causal:
        return scores, slope
    if mask is None:
        mask = torch.full(scores.shape[-2:], float("-inf"), dtype=wide, device=q.device).triu(1)
    return scores + mask, slope


def _as_wide(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Pad heads with zeros: the kernel needs values as wide as queries."""
    missing = q.shape[-1] - x.shape[-1]
    return torch.nn.functional.pad(x, (0, missing)) if missing else x


def each_query(kv: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Repeat keys or values for each query head."""
    return kv.repeat_interleave(q.shape[1] // kv.shape[1], 1)


def shared_gradient(gradient: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
    """Sum gradients over the query heads that share a key-value head."""
    return gradient.unflatten(1, (kv.shape[1], -1)).sum(2)
