"""Every admissible pattern of late replicas decodes, and a replica computes s + 1 of n shares."""

from itertools import combinations

import numpy as np
import pytest

from meshwright.plans.synchronisation.gradient_code import GradientCode, arrival_patterns, gradient_code

CODES = [(n, s) for n in range(2, 9) for s in range(n)]


@pytest.mark.parametrize(("replicas", "tolerate"), CODES)
def test_every_pattern_of_arrivals_decodes(replicas, tolerate):
    code = gradient_code(replicas, tolerate)
    shares = np.random.default_rng(0).standard_normal((replicas, 5))
    sent = code.matrix @ shares
    for late in range(tolerate + 1):
        for there in combinations(range(replicas), replicas - late):
            weights = np.array(code.decode(there))
            assert not weights[[replica for replica in range(replicas) if replica not in there]].any()
            np.testing.assert_allclose(weights @ sent, shares.sum(0), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("replicas", "tolerate"), CODES)
def test_replicas_compute_equally_many_shares_and_each_share_as_often(replicas, tolerate):
    code = gradient_code(replicas, tolerate)
    computed = [code.shares_of(replica) for replica in range(replicas)]
    assert {len(set(shares)) for shares in computed} == {tolerate + 1}
    assert all(replica in shares for replica, shares in enumerate(computed))
    every = [share for shares in computed for share in shares]
    assert {every.count(share) for share in range(replicas)} == {tolerate + 1}
    for replica, shares in enumerate(computed):
        assert code.coefficients(replica) == [code.matrix[replica, share] for share in shares]
        assert np.count_nonzero(code.matrix[replica]) == tolerate + 1


def test_groups_repeat_shares_where_they_divide_the_replicas():
    assert gradient_code(6, 2).repeats
    assert gradient_code(6, 2).shares_of(4) == [3, 4, 5]
    assert gradient_code(6, 2).worst_condition == 1
    assert not gradient_code(7, 2).repeats
    assert gradient_code(7, 2).shares_of(6) == [6, 0, 1]


@pytest.mark.parametrize(
    ("replicas", "tolerate", "most"), [(3, 1, 3), (5, 2, 5), (7, 2, 10), (7, 1, 12), (8, 2, 70)]
)
def test_the_worst_condition_is_that_of_some_pattern(replicas, tolerate, most):
    code = GradientCode(replicas, tolerate)
    of_patterns = [
        np.linalg.cond(code.matrix[list(p)]) for p in combinations(range(replicas), replicas - tolerate)
    ]
    assert code.worst_condition == pytest.approx(max(of_patterns))
    assert 1 < code.worst_condition < most


def test_very_many_patterns_are_sampled():
    assert len(list(arrival_patterns(8, 2))) == 28
    sampled = list(arrival_patterns(40, 4))
    assert 500 < len(sampled) < 1100
    assert {len(set(pattern)) for pattern in sampled} == {36}
