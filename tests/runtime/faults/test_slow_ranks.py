import numpy as np
import pytest

from meshwright.runtime.faults.slow_ranks import slow_ranks
from meshwright.runtime.faults.step_series import StepSeconds, StepSeries, level_change

FIRST_S, USUAL_S = 0.5, 0.1


def series_of(*busy, first=0):
    found = StepSeries()
    steps = range(first, first + len(busy[0]))
    found.add(steps, {rank: [StepSeconds(one, 0.0) for one in of] for rank, of in enumerate(busy)})
    return found


def healthy(rng, steps=30):
    return [FIRST_S, *(USUAL_S * rng.lognormal(0.0, 0.2, steps - 1))]


def slowed(rng, at, factor=10.0, steps=30):
    return [one * (factor if number >= at else 1.0) for number, one in enumerate(healthy(rng, steps))]


def all_alike(ranks):
    return dict.fromkeys(range(ranks), range(ranks))


@pytest.mark.parametrize("at", [1, 2, 8, 25])
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_slow_rank_is_named_with_the_step_from_which_on_it_is_slow(at, ranks):
    rng = np.random.default_rng(at)
    busy = [healthy(rng) for _ in range(ranks - 1)]
    (fault,) = slow_ranks(series_of(*busy, slowed(rng, at), first=100), all_alike(ranks))
    assert (fault.kind, fault.rank) == ("slow", ranks - 1)
    assert fault.step == 100 + at or (at == 1 and fault.step == 100)  # the first step is as long by itself
    assert "times as long as its peers" in fault.evidence


def test_a_rank_without_peers_is_compared_with_its_own_past_and_the_growth_of_others():
    rng = np.random.default_rng(0)
    alone = {0: [0], 1: [1]}
    (fault,) = slow_ranks(series_of(healthy(rng), slowed(rng, 9)), alone)
    assert (fault.rank, fault.step) == (1, 9)
    assert not slow_ranks(series_of(slowed(rng, 9), slowed(rng, 9)), alone), "all have become slow"


def test_unequal_work_and_short_disturbances_are_no_faults():
    rng = np.random.default_rng(0)
    unequal = [3 * one for one in healthy(rng)]
    assert not slow_ranks(series_of(healthy(rng), unequal), all_alike(2))
    disturbed = healthy(rng)
    disturbed[-4:] = [20 * USUAL_S] * 4
    assert not slow_ranks(series_of(healthy(rng), disturbed), all_alike(2))


def test_a_known_rank_is_not_named_again():
    rng = np.random.default_rng(0)
    series = series_of(healthy(rng), slowed(rng, 9))
    assert slow_ranks(series, all_alike(2))
    assert not slow_ranks(series, all_alike(2), known={1})


def test_healthy_ranks_are_never_named():
    rng = np.random.default_rng(1)
    busy = [healthy(rng, 2000) for _ in range(4)]
    for end in range(100, 2001, 100):
        assert not slow_ranks(series_of(*(of[:end] for of in busy)), all_alike(4))


@pytest.mark.parametrize("at", [1, 3, 9])
def test_a_series_changes_where_its_level_does(at):
    assert level_change([1.0, 1.2] * 5, 1.3) is None
    values = [1.0, 1.2] * 5
    assert (
        level_change([one * (3.0 if number >= at else 1.0) for number, one in enumerate(values)], 1.3) == at
    )
    assert level_change([], 1.3) is None
