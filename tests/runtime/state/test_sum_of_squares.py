"""The norm of many gradients keeps its digits in single precision."""

import pytest

pytest.importorskip("torch")

import torch

from meshwright.runtime.state.optimizer import ROW, sum_of_squares


@pytest.mark.parametrize("length", [0, 1, ROW - 1, ROW, 3 * ROW + 5])
def test_all_elements_are_counted_whatever_their_number(length):
    values = torch.arange(1, length + 1, dtype=torch.float64)
    assert sum_of_squares(values).item() == pytest.approx(length * (length + 1) * (2 * length + 1) / 6)


def test_a_long_sum_in_single_precision_is_that_in_double():
    values = torch.rand(2**23, generator=torch.Generator().manual_seed(0))
    assert sum_of_squares(values).item() == pytest.approx(values.double().square().sum().item(), rel=1e-6)
