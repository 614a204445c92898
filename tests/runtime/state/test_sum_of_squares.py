"""The norm of many gradients keeps its digits in single precision."""

from itertools import pairwise

import pytest

pytest.importorskip("torch")

import torch

from meshwright.runtime.state.gradient_norm import ROW, sum_of_squares, sum_of_squares_in_parts


@pytest.mark.parametrize("length", [0, 1, ROW - 1, ROW, 3 * ROW + 5])
def test_all_elements_are_counted_whatever_their_number(length):
    values = torch.arange(1, length + 1, dtype=torch.float64)
    assert sum_of_squares(values).item() == pytest.approx(length * (length + 1) * (2 * length + 1) / 6)


def test_a_long_sum_in_single_precision_is_that_in_double():
    values = torch.rand(2**23, generator=torch.Generator().manual_seed(0))
    assert sum_of_squares(values).item() == pytest.approx(values.double().square().sum().item(), rel=1e-6)


@pytest.mark.parametrize(
    "cuts", [(0,), (3,), (ROW,), (ROW - 1, 2 * ROW + 3), (5, 6, ROW + 1), (3 * ROW + 2,)], ids=str
)
def test_values_in_several_parts_have_the_squares_of_one_tensor(cuts):
    values = torch.rand(3 * ROW + 5, generator=torch.Generator().manual_seed(1))
    ends = (0, *cuts, len(values))
    parts = [values[start:stop] for start, stop in pairwise(ends)]
    assert torch.equal(sum_of_squares_in_parts(parts, values[:1]), sum_of_squares(values))
