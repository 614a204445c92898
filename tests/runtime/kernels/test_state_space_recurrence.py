"""Blocks of Mamba-2 against the filter and the recurrence as they are defined, position by position."""

import pytest
import torch

from meshwright.runtime.kernels.state_space.state_space_recurrence import Recurrence, causal_filter
from meshwright.runtime.reference.state_space import filtered, recurred

BATCH, HEADS, LENGTH, WIDTH, STATE, TAPS = 2, 3, 17, 5, 4, 3
NO_BORDERS = torch.zeros(BATCH, LENGTH, dtype=torch.long)


def drawn(*sizes):
    generator = torch.Generator().manual_seed(sum(sizes))
    return torch.randn(sizes, generator=generator, dtype=torch.float64)


@pytest.fixture
def inputs():
    x, decay = drawn(LENGTH, BATCH, HEADS, WIDTH), -drawn(LENGTH, BATCH, HEADS).abs()
    return x, decay, drawn(LENGTH, BATCH, STATE), drawn(LENGTH, BATCH, STATE + 1)[..., 1:]


def by_position(x, decay, b, c):
    state, out = torch.zeros(BATCH, HEADS, STATE, WIDTH, dtype=torch.float64), []
    for at in range(LENGTH):
        state = state * decay[at].exp()[..., None, None] + b[at][:, None, :, None] * x[at][:, :, None]
        out.append(torch.einsum("bs,bhsp->bhp", c[at], state))
    return torch.stack(out)


@pytest.mark.parametrize("size", [1, 4, 16, 17, 64])
def test_blocks_of_any_size_are_the_recurrence(inputs, size):
    found = Recurrence(*inputs).output(size)
    torch.testing.assert_close(found, by_position(*inputs), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [1, 5, 17])
def test_gradients_are_those_of_the_recurrence(inputs, size):
    g = drawn(LENGTH, BATCH, HEADS, WIDTH + 2)[..., 2:]
    leaves = [part.clone().requires_grad_() for part in inputs]
    expected = torch.autograd.grad(by_position(*leaves), leaves, g)
    found = torch.autograd.grad(Recurrence(*leaves).output(size), leaves, g)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


def test_strong_decays_leave_no_infinities(inputs):
    x, decay, b, c = (part.clone().requires_grad_() for part in inputs)
    out = Recurrence(x, decay * 1e4, b, c).output(8)
    gradients = torch.autograd.grad(out.sum(), (x, decay, b, c))
    assert all(part.isfinite().all() for part in (out, *gradients))


def test_the_plain_reference_is_the_recurrence(inputs):
    found = recurred(*(part.transpose(0, 1) for part in (inputs[1], inputs[0], *inputs[2:])), NO_BORDERS)
    torch.testing.assert_close(found.transpose(0, 1), by_position(*inputs), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("biased", [True, False])
def test_a_filter_sees_a_position_and_those_before_it(biased):
    x, weight = drawn(LENGTH, BATCH, WIDTH), drawn(WIDTH, 1, TAPS)
    bias = drawn(WIDTH) if biased else None
    found = causal_filter(x, weight, bias)
    for at in range(LENGTH):
        terms = [x[at - back] * weight[:, 0, TAPS - 1 - back] for back in range(min(TAPS, at + 1))]
        summed = sum(terms) + (bias if biased else 0)
        torch.testing.assert_close(found[at], torch.nn.functional.silu(summed), rtol=1e-12, atol=1e-12)
    tensors = {"f.weight": weight} | ({"f.bias": bias} if biased else {})
    plain = filtered(tensors, "f", x.transpose(0, 1), NO_BORDERS).transpose(0, 1)
    torch.testing.assert_close(found, plain, rtol=1e-12, atol=1e-12)
