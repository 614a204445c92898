"""Partitions against trying every one of them, at a relative error of 1e-9."""

import numpy as np
import pytest
from small_chains import SHAPES, random_chain

from meshwright.errors import InputError
from meshwright.search.partition.balance import BALANCES, Partition, Unfit, by_memory, by_time
from meshwright.search.partition.layer_chain import Chain

SEEDS = range(220)
ONE_STAGE = tuple(shape for shape in SHAPES if shape[2] == 1)


def near(value):
    return pytest.approx(value, rel=1e-9, abs=1e-9)


def capacities(small):
    """Too little for anything, just enough for the leanest, and somewhat more."""
    least = small.best("bytes")
    return [0.9 * least, least, 1.07 * least, 1.3 * least]


def check_says_what_it_is(small, found):
    """A partition's numbers are those of its stops and modes."""
    assert found.stops[0] == 0
    assert found.stops[-1] == len(small.states)
    assert all(count > 0 for count in found.counts)
    assert list(found.seconds) == near(small.seconds(found.stops, found.modes))
    assert list(found.bytes) == near(small.held(found.stops, found.modes))


@pytest.mark.quick_cases(60)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_partition_has_a_shorter_slowest_rank(seed):
    small = random_chain(seed)
    found = by_time(small.chain)
    check_says_what_it_is(small, found)
    assert found.proven
    assert found.bound == near(max(found.seconds)) == near(small.best("seconds"))


@pytest.mark.quick_cases(36)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_partition_has_a_leaner_fullest_rank_nor_one_as_lean_a_shorter_slowest(seed):
    small = random_chain(seed)
    found = by_memory(small.chain)
    check_says_what_it_is(small, found)
    least = small.best("bytes")
    assert found.proven
    assert found.bound == near(max(found.bytes)) == near(least)
    assert max(found.seconds) == near(small.best("seconds", least))


@pytest.mark.quick_cases(36)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_partition_that_fits_has_a_shorter_slowest_rank(seed):
    small = random_chain(seed)
    for capacity in capacities(small):
        wanted = small.best("seconds", capacity)
        found = by_time(small.chain, capacity)
        assert isinstance(found, Unfit) == (wanted is None)
        assert found.proven
        if isinstance(found, Partition):
            check_says_what_it_is(small, found)
            assert max(found.bytes) <= capacity * (1 + 1e-9)
            assert max(found.seconds) == near(wanted)


@pytest.mark.quick_cases(36)
@pytest.mark.parametrize("seed", SEEDS)
def test_with_a_stage_a_rank_ties_go_to_the_least_squares(seed):
    small = random_chain(seed, ONE_STAGE, most_modes=3)
    for capacity in capacities(small)[1:]:
        found = by_time(small.chain, capacity)
        squares = small.best("squares", capacity, small.best("seconds", capacity))
        assert sum(seconds**2 for seconds in found.seconds) == near(squares)


@pytest.mark.parametrize("seed", range(60))
def test_every_rank_may_have_a_capacity_of_its_own(seed):
    small = random_chain(seed)
    room = [small.best("bytes") * (1.3 if rank % 2 else 0.8) for rank in range(small.ranks)]
    fitting = [
        max(small.seconds(*partition))
        for partition in small.partitions()
        if all(held <= most for held, most in zip(small.held(*partition), room, strict=True))
    ]
    found = by_time(small.chain, room)
    assert isinstance(found, Unfit) == (not fitting)
    if fitting:
        assert max(found.seconds) == near(min(fitting))


@pytest.mark.parametrize("seed", range(60))
def test_what_does_not_fit_names_the_rank_that_lacks_most_where_least_is_lacking(seed):
    small = random_chain(seed)
    least = small.best("bytes")
    found = by_time(small.chain, 0.9 * least)
    assert found.proven
    assert found.bytes == near(least)
    assert found.capacity == near(0.9 * least)
    assert 0 <= found.rank < small.ranks


def test_fewer_layers_than_stages_and_costs_that_are_none_are_refused_together():
    with pytest.raises(InputError) as refused:
        Chain.of((0, 1, 2), forward=[1.0, -2.0], input_=[1.0, 1.0], states=[np.nan, 1.0])
    assert [problem.field for problem in refused.value.problems] == ["stages", "seconds", "bytes"]


@pytest.mark.parametrize("name", BALANCES)
def test_equal_layers_are_dealt_out_evenly(name):
    chain = Chain.of((0, 1, 2, 0, 1, 2), forward=[1.0] * 12, input_=2.0, states=[1.0] * 12)
    found = BALANCES[name](chain)
    assert found.seconds == (12.0, 12.0, 12.0)
    assert found.counts == (2,) * 6


def test_the_first_ranks_hold_more_micro_batches_and_get_fewer_layers():
    """The non-uniform pipeline of YUAN 2.0 (arXiv 2311.15786): under 1F1B rank r has P − r micro-batches in flight."""
    ranks, layers = 8, 96
    chain = Chain.of(
        tuple(range(ranks)),
        forward=[1.0] * layers,
        input_=2.0,
        states=[1.0] * layers,
        kept=1.0,
        in_flight=[ranks - rank for rank in range(ranks)],
    )
    even, lean = by_time(chain), by_memory(chain)
    assert even.counts == (12,) * ranks
    assert lean.counts == (6, 6, 7, 9, 10, 13, 18, 27)
    assert (max(even.bytes), max(lean.bytes)) == (108.0, 54.0)
    between = by_time(chain, 0.75 * max(even.bytes))
    assert max(even.seconds) < max(between.seconds) < max(lean.seconds)


def test_stages_compute_again_only_where_memory_asks_for_it():
    ranks, layers = 4, 16
    chain = Chain.of(
        tuple(range(ranks)),
        forward=[[1.0] * layers] * 2,
        input_=[[1.0] * layers, [2.0] * layers],
        weight=1.0,
        states=[2.0] * layers,
        kept=[[1.0] * layers, [0.1] * layers],
        in_flight=[4, 3, 2, 1],
    )
    roomy, tight = by_time(chain, 1000.0), by_time(chain, 18.0)
    assert roomy.modes == (0, 0, 0, 0)
    assert 1 in tight.modes[:2]
    assert tight.modes[2:] == (0, 0)
    assert max(tight.bytes) <= 18.0 < max(roomy.bytes)
    assert tight.counts[0] < tight.counts[-1]
    assert max(roomy.seconds) < max(tight.seconds)
