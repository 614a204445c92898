"""Blocks of linear attention against the recurrence as it is defined, position by position."""

import pytest
import torch

from meshwright.runtime.kernels.linear_attention.block_recurrence import (
    Decay,
    entering_gradient,
    linear_attention,
    linear_attention_gradients,
    state_after,
)

BATCH, HEADS, LENGTH, WIDTH = 2, 3, 17, 5
RATES = torch.tensor([0.7, 0.03, 1e-5], dtype=torch.float64)


def drawn(*sizes):
    generator = torch.Generator().manual_seed(sum(sizes))
    return torch.randn(sizes, generator=generator, dtype=torch.float64)


def recurrence(q, k, v, state):
    """Outputs, and the last state."""
    out = []
    for at in range(q.shape[2]):
        state = state * torch.exp(-RATES)[:, None, None] + k[:, :, at, :, None] * v[:, :, at, None, :]
        out.append(torch.einsum("bhi,bhij->bhj", q[:, :, at], state))
    return torch.stack(out, 2), state


@pytest.fixture
def heads():
    q, k, v = (drawn(BATCH, HEADS, LENGTH, WIDTH + i)[..., :WIDTH].clone() for i in range(3))
    return q, k, v


@pytest.fixture
def entering():
    return drawn(BATCH, HEADS, WIDTH, WIDTH)


@pytest.mark.parametrize("size", [1, 4, 16, 17, 64])
def test_blocks_of_any_size_are_the_recurrence(heads, entering, size):
    expected, _ = recurrence(*heads, entering)
    found = linear_attention(*heads, Decay(RATES, size), entering)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


def test_a_stretch_leaves_the_state_of_the_recurrence(heads, entering):
    _, expected = recurrence(*heads, torch.zeros_like(entering))
    found = state_after(*heads[1:], Decay(RATES, 4))
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("size", [1, 5, 17])
def test_gradients_are_those_of_the_recurrence(heads, entering, size):
    g, of_left = drawn(BATCH, HEADS, LENGTH, WIDTH + 9)[..., :WIDTH], drawn(HEADS, BATCH, WIDTH, WIDTH)
    of_left = of_left.transpose(0, 1)
    inputs = [part.clone().requires_grad_() for part in (*heads, entering)]
    out, left = recurrence(*inputs)
    *expected, of_entering = torch.autograd.grad((out, left), inputs, (g, of_left))
    decay = Decay(RATES, size)
    found = linear_attention_gradients(g, heads, decay, entering, of_left)
    torch.testing.assert_close(list(found), expected, rtol=1e-12, atol=1e-12)
    through = decay.of(LENGTH).through * of_left
    torch.testing.assert_close(
        entering_gradient(heads[0], g, decay) + through, of_entering, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("cut", [1, 8, 16])
def test_what_one_part_leaves_enters_the_next(heads, entering, cut):
    decay = Decay(RATES, 4)
    whole = linear_attention(*heads, decay, entering)
    first, second = ([part[:, :, rows] for part in heads] for rows in (slice(0, cut), slice(cut, None)))
    between = state_after(*first[1:], decay) + decay.of(cut).through * entering
    found = torch.cat(
        (linear_attention(*first, decay, entering), linear_attention(*second, decay, between)), 2
    )
    torch.testing.assert_close(found, whole, rtol=1e-13, atol=1e-13)
