"""Every way to attend gives the output and the gradients of plain softmax attention."""

import pytest
import torch

from meshwright.runtime.kernels.attention import scaled_dot_product
from meshwright.runtime.kernels.attention.scaled_dot_product import Scores, attend, attention_gradients

BATCH, HEADS, KV_HEADS, LENGTH, WIDTH = 2, 6, 2, 13, 8
CLOSE = {"rtol": 1e-11, "atol": 1e-12}


def heads(count, seed):
    generator = torch.Generator().manual_seed(seed)
    value = torch.randn(LENGTH, BATCH, count, WIDTH, generator=generator, dtype=torch.float64)
    return value.permute(1, 2, 0, 3)  # as the runtime holds them: the sequence outermost


def expected(q, k, v, of):
    """Output and gradients by autograd, scores written down."""
    q, k, v = (tensor.detach().clone().requires_grad_() for tensor in (q, k, v))
    each = HEADS // KV_HEADS
    scores = q @ k.repeat_interleave(each, 1).transpose(-1, -2) * of.scale
    if of.cap is not None:
        scores = torch.tanh(scores / of.cap) * of.cap
    causal = torch.full((LENGTH, LENGTH), float("-inf"), dtype=torch.float64).triu(1)
    weights = (scores + (causal if of.mask is None else of.mask)).softmax(-1)
    out = weights @ v.repeat_interleave(each, 1)
    g = heads(HEADS, 9)
    return out, g, torch.autograd.grad(out, (q, k, v), g)


def window():
    place = torch.arange(LENGTH)
    behind = place[:, None] - place
    hidden = (behind < 0) | (behind >= 4)
    return torch.zeros(LENGTH, LENGTH, dtype=torch.float64).masked_fill(hidden, float("-inf"))


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel of the CPU", "torch's choice"])
@pytest.mark.parametrize(
    "of",
    [
        Scores(0.3, None, None),
        Scores(0.3, None, window()),
        Scores(0.3, 0.7, None),
        Scores(0.3, 0.7, window()),
    ],
    ids=["causal", "window", "cap", "cap and window"],
)
def test_output_and_gradients_are_those_of_plain_attention(kernel, of, monkeypatch):
    if not kernel:
        monkeypatch.setattr(scaled_dot_product, "_has_kernel", lambda q, of: False)
    q, k, v = heads(HEADS, 1), heads(KV_HEADS, 2), heads(KV_HEADS, 3)
    out, statistic = attend(q, k, v, of)
    wanted, g, gradients = expected(q, k, v, of)
    torch.testing.assert_close(out, wanted.detach(), **CLOSE)
    for found, right in zip(attention_gradients(g, q, k, v, out, statistic, of), gradients, strict=True):
        torch.testing.assert_close(found, right, **CLOSE)
