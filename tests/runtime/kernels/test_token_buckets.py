"""Buckets of rows with equal codes: which rows share one, in which order, and their sums."""

import pytest

pytest.importorskip("torch")

import torch

from meshwright.program.synchronisation.token_hashing import TokenHashing
from meshwright.runtime.kernels.moe.token_buckets import hash_codes, projections, token_buckets
from meshwright.runtime.kernels.moe.token_permutation import order_of

HASHING = TokenHashing(0, 6, 16, 0.2)
HIDDEN = 48


def drawn(*size, seed=0):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def codes(tokens):
    return hash_codes(tokens, projections(HASHING, 0, 0, HIDDEN), HASHING.hashes)


def test_a_code_is_the_dim_of_the_largest_magnitude_and_its_sign():
    tokens = torch.tensor([[0.1, -0.2, 3.0, 1.0], [0.1, -5.0, 3.0, 1.0]])
    assert hash_codes(tokens, torch.eye(4), 2).tolist() == [[3, 0], [3, 0]]
    assert hash_codes(-tokens, torch.eye(4), 2).tolist() == [[1, 2], [1, 2]]
    assert hash_codes(tokens, torch.eye(4), 1).tolist() == [[2], [5]]


def test_codes_depend_on_directions_alone_and_have_two_for_each_dim():
    tokens = drawn(500, HIDDEN)
    found = codes(tokens)
    assert torch.equal(codes(tokens * 7.5), found)
    assert torch.equal((codes(-tokens) - found).abs(), torch.full_like(found, 16))
    assert found.unique().tolist() == list(range(32))


def test_near_tokens_share_codes_more_often_than_far_ones():
    tokens, noise = drawn(400, HIDDEN), drawn(400, HIDDEN, seed=1)
    near, far = (float((codes(tokens) == codes(tokens + by * noise)).double().mean()) for by in (0.1, 1.0))
    unlike = float((codes(tokens) == codes(noise)).double().mean())
    assert near > 0.7 > far > 0.1 > unlike


def test_matrices_follow_from_seed_and_layer():
    of = [projections(HASHING, seed, layer, HIDDEN) for seed, layer in ((0, 0), (0, 0), (0, 1), (1, 0))]
    assert torch.equal(of[0], of[1])
    assert not torch.equal(of[0], of[2])
    assert not torch.equal(of[0], of[3])
    assert of[0].shape == (HIDDEN, 6 * 16)


def test_rows_of_one_expert_with_equal_codes_are_one_bucket():
    places = torch.tensor([[2, 0], [0, 2], [2, 1], [0, 1]])
    found = token_buckets(torch.tensor([[7, 7], [7, 7], [7, 8], [7, 7]]), places, order_of(places), 4)
    assert found.counts.tolist() == [1, 2, 2, 0]
    assert found.sizes.tolist() == [3, 1, 1, 2, 1]
    assert found.of_rows.tolist() == [0, 0, 0, 2, 1, 3, 3, 4]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_means_are_those_of_each_bucket(dtype):
    places = torch.tensor([[0, 1], [0, 1], [1, 0]])
    found = token_buckets(torch.tensor([[3], [3], [4]]), places, order_of(places), 2)
    rows = drawn(6, 5).to(dtype)
    means = found.means(rows, torch.float64)
    assert means.dtype == dtype
    wanted = [rows[found.of_rows == bucket].double().mean(0) for bucket in range(len(found.sizes))]
    assert torch.equal(means, torch.stack(wanted).to(dtype))
    sums = found.sums(rows, torch.float64)
    torch.testing.assert_close(sums, torch.stack(wanted) * found.sizes[:, None])


def test_a_rank_without_tokens_has_no_buckets():
    places = torch.zeros((0, 2), dtype=torch.long)
    found = token_buckets(torch.zeros((0, 6), dtype=torch.long), places, order_of(places), 3)
    assert found.counts.tolist() == [0, 0, 0]
    assert found.means(torch.zeros(0, 4), torch.float32).shape == (0, 4)
