from itertools import combinations

import numpy as np
import pytest

from meshwright.runtime.faults.message_matrix import named_by_matrix, rounds, slow_pairs

USUAL_S = 1e-3


@pytest.mark.parametrize("ranks", range(2, 10))
def test_every_pair_meets_once_in_rounds_of_disjoint_pairs(ranks):
    found = rounds(ranks)
    assert sorted(pair for pairs in found for pair in pairs) == list(combinations(range(ranks), 2))
    for pairs in found:
        members = [rank for pair in pairs for rank in pair]
        assert len(members) == len(set(members))


def matrix(ranks, slow=(), factor=10.0, seed=0):
    times = USUAL_S * np.random.default_rng(seed).lognormal(0.0, 0.2, (ranks, ranks))
    np.fill_diagonal(times, np.nan)
    for a, b in slow:
        times[a, b] *= factor
        times[b, a] *= factor
    return times


def named(now, healthy):
    ranks = range(10, 10 + len(now))
    slow = slow_pairs(now, healthy)
    return [(of.kind, of.rank, of.peer) for of in named_by_matrix(slow, ranks, now, healthy, 7)]


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_one_slow_cell_is_a_link(ranks):
    assert named(matrix(ranks, [(0, 1)], seed=1), matrix(ranks)) == [("link", 10, 11)]


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_a_slow_row_is_a_rank(ranks):
    slow = [(1, other) for other in range(ranks) if other != 1]
    assert named(matrix(ranks, slow, seed=1), matrix(ranks)) == [("slow", 11, None)]


def test_without_a_healthy_measurement_cells_are_compared_with_each_other():
    assert named(matrix(4, [(2, 3)]), None) == [("link", 12, 13)]
    assert not named(matrix(2, [(0, 1)]), None)


def test_a_host_that_slows_all_messages_is_no_fault():
    assert not named(matrix(4, combinations(range(4), 2), factor=6.0), matrix(4))


def test_healthy_links_of_unlike_speed_are_no_fault():
    healthy = matrix(4, [(0, 1)], factor=20.0)
    assert not named(matrix(4, [(0, 1)], factor=20.0, seed=1), healthy)


def test_evidence_has_the_time_now_before_and_elsewhere():
    now, healthy = np.full((3, 3), 1e-3), np.full((3, 3), 1e-3)
    now[0, 2] = now[2, 0] = 8e-3
    (fault,) = named_by_matrix(slow_pairs(now, healthy), range(3), now, healthy, 4)
    assert fault.evidence == "a message takes 8 ms, 8.0 times the 1 ms before, 1 ms between other ranks"
