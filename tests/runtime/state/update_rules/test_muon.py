"""Muon's orthogonalisation: singular values near 1, and parts of a matrix give what the whole gives."""

import pytest
import torch

from meshwright.runtime.state.update_rules.muon import orthogonalised, orthogonalised_columns, scale_factor
from meshwright.runtime.verify.reference_rules import orthogonal

SHAPES = ((8, 8), (6, 20), (20, 6))


def drawn(shape, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("shape", SHAPES)
def test_singular_values_come_near_one_and_singular_vectors_stay(shape):
    matrix = drawn(shape)
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    inner = u.T @ orthogonalised(matrix, 10) @ v.T
    assert (inner - inner.diagonal().diag()).abs().max() < 1e-9
    assert (inner.diagonal() - 1).abs().max() < 0.35  # the constants do not let them converge to 1


@pytest.mark.parametrize("shape", SHAPES)
def test_the_side_that_products_are_made_of_does_not_matter(shape):
    torch.testing.assert_close(orthogonalised(drawn(shape), 5), orthogonal(drawn(shape), 5))


def test_columns_of_several_ranks_give_the_whole():
    matrix = drawn((6, 20))
    parts = matrix.split(10, 1)
    both = [parts[0].clone(), parts[1].clone()]
    grams: list[torch.Tensor] = []

    def first(gram):
        """What the other rank has at the same step is found by running it alongside."""
        grams.append(gram)
        return gram + others[len(grams) - 1]

    others = _grams_of(parts[1], parts[0])
    found = orthogonalised_columns(both[0], 5, first)
    torch.testing.assert_close(found, orthogonalised(matrix, 5)[:, :10])


def _grams_of(part, other):
    """The Gram matrices of a rank's columns in each step of the whole matrix."""
    whole = torch.cat((other, part), 1)
    grams, x = [part @ part.T], whole
    for step in range(1, 5):
        x = orthogonalised(whole, step)
        mine = x[:, other.shape[1] :]
        grams.append(mine @ mine.T)
    return grams


def test_a_matrix_of_zeros_stays_one():
    assert not orthogonalised(torch.zeros(4, 6), 5).any()
    assert not orthogonalised_columns(torch.zeros(4, 6), 5, lambda gram: gram).any()


def test_factors_are_those_of_the_plans_page():
    factors = {
        name: scale_factor(name, 4, 16) for name in ("shape", "spectral", "match-rms-adamw", "unit-rms")
    }
    assert factors == {"shape": 1.0, "spectral": 4.0, "match-rms-adamw": 0.8, "unit-rms": 0.5}
    assert scale_factor("shape", 16, 4) == 2.0
