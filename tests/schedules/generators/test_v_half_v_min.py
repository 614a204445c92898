"""V schedules of controllable memory against what their building blocks promise (Qi et al., arXiv 2405.15362)."""

from itertools import product

import pytest

from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.generators.v_half_v_min import PERIOD, V_HALF, V_MIN, first_ticks
from meshwright.schedules.timeline import run

SHAPES = [(p, m) for p, m in product((2, 3, 4, 8, 16, 32), (32, 64, 128)) if m >= 2 * p]
SHARE = {"v-half": 1 / 2, "v-min": 1 / 3}


def peak(actions):
    """Most forward passes of a chunk whose W has not ended."""
    level = most = 0
    for action in actions:
        level += {"F": 1, "W": -1}.get(action.kind, 0)
        most = max(most, level)
    return most


@pytest.mark.parametrize("offsets", [V_HALF, V_MIN])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 6, 7, 8, 12, 24, 32, 64])
def test_no_two_passes_of_a_rank_collide(ranks, offsets):
    for ticks in first_ticks(ranks, offsets):
        assert list(ticks) == sorted(ticks)
        assert len({tick % PERIOD for tick in ticks}) == 4


@pytest.mark.parametrize(("p", "m"), SHAPES)
@pytest.mark.parametrize("name", SHARE)
def test_activations_are_the_promised_share_of_1f1b_and_a_few_more(name, p, m):
    """1F1B's first rank holds P micro-batches, 2P passes of a chunk; the block's turns and W's wait add up to 4."""
    lists = SCHEDULES[name].lists(p, m, 2)
    assert max(map(peak, lists)) <= 2 * p * SHARE[name] + 4


@pytest.mark.quick_cases(9)
@pytest.mark.parametrize(("p", "m"), SHAPES)
def test_bubbles_lie_between_none_and_that_of_1f1b(p, m):
    """In ticks: 1F1B's is 6(P − 1); the papers give about half of it for V-Half, two thirds for V-Min."""
    bubble = {name: run(SCHEDULES[name].lists(p, m, 2), lambda a: 1).makespan - 6 * m for name in SHARE}
    assert 0 < bubble["v-half"] <= 0.62 * 6 * (p - 1) + 1
    assert 0 < bubble["v-min"] <= 0.70 * 6 * (p - 1) + 1


@pytest.mark.parametrize("name", SHARE)
def test_the_bubble_does_not_grow_with_the_micro_batches(name):
    lengths = [run(SCHEDULES[name].lists(8, m, 2), lambda a: 1).makespan - 6 * m for m in (16, 64, 256)]
    assert len(set(lengths)) == 1
