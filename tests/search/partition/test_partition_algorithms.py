"""The parts of the search for partitions with several stages a rank: bound, windows, legs, dealing out rank by rank."""

import numpy as np
import pytest
from small_chains import SHAPES, random_chain

from meshwright.schedules.pipeline import looped_placement, v_placement
from meshwright.search.partition.chunk_directions import directed_chunks
from meshwright.search.partition.layer_chain import Chain
from meshwright.search.partition.lower_bound import least_load, mean_load
from meshwright.search.partition.objective import Task, pieces_of
from meshwright.search.partition.rank_by_rank_search import RankByRankSearch
from meshwright.search.partition.window_descent import descended, even_cut, merit, windows

SEVERAL = tuple(shape for shape in SHAPES if shape[2] > 1)


def task_of(small, capacity=None):
    chain = small.chain
    if capacity is None:
        return Task.free(chain, chain.seconds)
    return Task(chain, chain.seconds, chain.held, np.full(chain.ranks, capacity))


def tasks(seed):
    """A time task without a limit, one with a limit that binds, and one of memory, with their best loads."""
    small = random_chain(seed, SEVERAL)
    capacity = 1.1 * small.best("bytes")
    yield task_of(small), small.best("seconds")
    yield task_of(small, capacity), small.best("seconds", capacity)
    yield Task.free(small.chain, small.chain.held), small.best("bytes")


def load(task, cut):
    return float(task.loads(cut).max())


@pytest.mark.quick_cases(40)
@pytest.mark.parametrize("seed", range(100))
def test_the_bound_is_below_every_partition(seed):
    for task, best in tasks(seed):
        assert mean_load(task) <= best * (1 + 1e-9)
        for known in (best, 1.3 * best):
            assert least_load(task, known) <= best * (1 + 1e-9)


@pytest.mark.parametrize(("ranks", "chunks", "layers"), [(3, 2, 10), (2, 3, 11), (4, 2, 13)])
def test_the_bound_is_sharp_where_layers_are_alike(ranks, chunks, layers):
    placement = looped_placement(ranks, chunks)
    chain = Chain.of(placement, forward=[0.1] + [1.0] * layers + [2.5], input_=0.0)
    task = Task.free(chain, chain.seconds)
    bound = least_load(task, 100.0)
    assert RankByRankSearch(task, directed_chunks(placement), bound, 10**4).better() is None
    assert load(
        task, RankByRankSearch(task, directed_chunks(placement), bound * 1.001, 10**4).better()
    ) == pytest.approx(bound)


@pytest.mark.quick_cases(40)
@pytest.mark.parametrize("seed", range(100))
def test_dealing_out_finds_the_best_there_is_below_what_is_known(seed):
    for task, best in tasks(seed):
        for known in (2 * task.goal.everything, 1.5 * best, best * (1 + 1e-6)):
            dealer = RankByRankSearch(task, directed_chunks(task.chain.placement), known, 10**4)
            cut = dealer.better()
            assert dealer.complete
            assert load(task, cut) == pytest.approx(best, rel=1e-9)
            assert task.allows(cut)
        assert RankByRankSearch(task, directed_chunks(task.chain.placement), best, 10**4).better() is None


@pytest.mark.parametrize("seed", range(60))
def test_dealing_out_few_states_owns_up_to_it(seed):
    for task, best in tasks(seed):
        dealer = RankByRankSearch(task, directed_chunks(task.chain.placement), 2 * best, 1)
        cut = dealer.better()
        if cut is not None:
            assert task.allows(cut)
            assert best * (1 - 1e-9) <= load(task, cut) < 2 * best
        if dealer.complete:
            assert load(task, cut) == pytest.approx(best, rel=1e-9)


def test_few_states_are_not_always_all_of_them():
    dealers = [
        RankByRankSearch(task, directed_chunks(task.chain.placement), 2 * best, 1)
        for s in range(20)
        for task, best in tasks(s)
    ]
    for dealer in dealers:
        dealer.better()
    assert 0 < sum(dealer.complete for dealer in dealers) < len(dealers)


@pytest.mark.parametrize("seed", range(60))
def test_windows_never_make_a_cut_worse(seed):
    small = random_chain(seed, SEVERAL)
    cut = even_cut(small.chain.layers, len(small.placement))
    held = max(small.held(cut.stops, cut.modes))
    task = task_of(small, held)
    better = descended(task, cut)
    assert merit(task, better) <= tuple(value * (1 + 1e-9) for value in merit(task, cut))
    assert task.allows(better)
    assert max(small.held(better.stops, better.modes)) <= held * (1 + 1e-9)


def test_windows_are_the_longest_runs_of_distinct_ranks():
    assert windows(looped_placement(3, 2)) == [range(n, n + 3) for n in range(4)]
    assert windows(v_placement(3, 2)) == [range(3), range(3, 6)]
    assert windows((0, 1, 2, 3)) == [range(4)]


def test_legs_of_a_loop_and_of_a_v():
    loop, v = directed_chunks(looped_placement(3, 2)), directed_chunks(v_placement(3, 3))
    assert [(leg.piece, leg.stages, leg.upward) for leg in loop] == [
        (0, (0, 1, 2), True),
        (1, (3, 4, 5), True),
    ]
    assert [leg.piece for leg in v] == [0, 0, 1]
    assert v[1].stages == (5, 4, 3)
    assert [leg.upward for leg in v] == [True, False, True]


@pytest.mark.parametrize("placement", [(0, 1, 1), (0, 2, 1), (0, 1, 2, 0, 2, 1), (1, 0, 0)])
def test_other_placements_have_no_legs(placement):
    assert directed_chunks(placement) is None


def test_equal_pieces_have_one_name_wherever_they_are():
    names = pieces_of(np.array([3, 1, 1, 3, 1, 1]))
    assert names[0, 3] == names[3, 6]
    assert names[1, 2] == names[2, 3] == names[4, 5]
    assert len({names[0, 2], names[1, 3], names[2, 4], names[0, 1]}) == 4
    assert {int(names[i, i]) for i in range(7)} == {0}
