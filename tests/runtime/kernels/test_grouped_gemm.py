"""Grouped products against a product for each expert, one after the other."""

import pytest
import torch

from meshwright.runtime.kernels.moe.grouped_gemm import (
    add_weight_product,
    input_product,
    product,
    uses_grouped_gemm,
)

COUNTS = [3, 0, 5, 1]
ROWS, INPUTS, OUTPUTS = sum(COUNTS), 16, 24
BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
"""Of numbers of order 1: rounding of sums of two dozen products."""


def drawn(dtype, *shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", BOUNDS)
def test_one_grouped_product_is_the_loop_over_experts(dtype):
    x, g = drawn(dtype, ROWS, INPUTS, seed=1), drawn(dtype, ROWS, OUTPUTS, seed=2)
    w = drawn(dtype, len(COUNTS), OUTPUTS, INPUTS, seed=3) / INPUTS**0.5
    total = torch.zeros(w.shape, dtype=torch.float32)
    loop = torch.zeros(w.shape, dtype=torch.float64)
    assert uses_grouped_gemm(x, w)
    assert not uses_grouped_gemm(x.double(), w.double())
    add_weight_product(total, g, x, COUNTS)
    add_weight_product(loop, g.double(), x.double(), COUNTS)
    pairs = (
        (product(x, w, COUNTS), product(x.double(), w.double(), COUNTS)),
        (input_product(g, w, COUNTS), input_product(g.double(), w.double(), COUNTS)),
        (total, loop),
    )
    for found, expected in pairs:
        assert found.shape == expected.shape
        assert (found - expected).abs().max() <= BOUNDS[dtype] * expected.abs().max()
    assert not total[1].any(), "an expert without rows has no gradient"


def test_gradients_that_were_expanded_are_taken():
    """The strides of such a gradient are zero, which the grouped kernel refuses."""
    g, w = torch.ones(1, OUTPUTS).expand(ROWS, OUTPUTS), drawn(torch.float32, len(COUNTS), OUTPUTS, INPUTS)
    expected = w.sum(1).repeat_interleave(torch.tensor(COUNTS), 0)
    assert torch.allclose(input_product(g, w, COUNTS), expected, atol=1e-4)


def test_rows_that_do_not_fill_sixteen_bytes_go_through_the_loop():
    x, w = drawn(torch.bfloat16, ROWS, 5), drawn(torch.bfloat16, len(COUNTS), 3, 5)
    assert not uses_grouped_gemm(x, w)
    assert product(x, w, COUNTS).shape == (ROWS, 3)
