"""Laws of PowerSGD: linear, exact up to its rank, with a warm start."""

import pytest
import torch
from codec_cases import Group

from meshwright.program.synchronisation.stretch import Stretch

SHAPE = (3, 20, 14)
STRETCHES = (Stretch("a", 3 * 20 * 14, SHAPE, 0),)


def _values(seed, rank=None):
    draw = torch.Generator().manual_seed(seed)
    count, rows, columns = SHAPE
    if rank is None:
        return torch.randn(SHAPE, generator=draw, dtype=torch.float64).flatten()
    left = torch.randn(count, rows, rank, generator=draw, dtype=torch.float64)
    return (left @ torch.randn(count, rank, columns, generator=draw, dtype=torch.float64)).flatten()


def _sum(options, values, weights=None):
    group = Group.of(options, STRETCHES, len(values), weights=weights)
    return group.exchange([[one] for one in values])[0][0]


def test_the_sum_of_ranks_is_that_of_one_rank_with_their_sum():
    values, weights = [_values(seed) for seed in range(3)], [0.2, 0.3, 0.5]
    together = sum(weight * one for weight, one in zip(weights, values, strict=True))
    several = _sum({"low_rank": 2}, values, weights)
    torch.testing.assert_close(several, _sum({"low_rank": 2}, [together]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_matrices_of_the_rank_are_exact(rank):
    value = _values(0, rank)
    torch.testing.assert_close(_sum({"low_rank": rank}, [value]), value, rtol=0, atol=1e-11)
    assert (_sum({"low_rank": rank}, [_values(0, rank + 2)]) - _values(0, rank + 2)).abs().max() > 0.1


def test_repeated_exchanges_find_the_best_factors():
    value = _values(0)
    group = Group.of({"low_rank": 2}, STRETCHES, 1)
    for _ in range(200):
        sent = group.exchange([[value]])[0][0]
    left, singular, right = torch.linalg.svd(value.view(SHAPE), full_matrices=False)
    best = (left[:, :, :2] * singular[:, None, :2]) @ right[:, :2]
    torch.testing.assert_close(sent.view(SHAPE), best, rtol=0, atol=1e-6)


def test_zeros_do_not_stop_later_exchanges():
    value = _values(0, 2)
    group = Group.of({"low_rank": 2}, STRETCHES, 1)
    group.exchange([[torch.zeros_like(value)]])
    for _ in range(2):
        sent = group.exchange([[value]])[0][0]
    torch.testing.assert_close(sent, value, rtol=0, atol=1e-10)


def test_first_factors_follow_from_the_seed():
    one, other = (Group.of({"low_rank": 2}, STRETCHES, 2) for _ in range(2))
    factors = [rank.states()["factor.a"] for rank in (*one.sums, *other.sums)]
    assert all(torch.equal(factors[0], factor) for factor in factors)
    assert factors[0].shape == (3, 14, 2)


def test_cast_factors_are_rounded_on_their_way():
    value = _values(0, 2)
    error = (_sum({"low_rank": 2, "cast": "bf16"}, [value]) - value).norm() / value.norm()
    assert 1e-4 < error < 2e-2
