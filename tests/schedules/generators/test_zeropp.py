"""ZeroPP's units: gathers, memory and bubble over the size of a unit (Tang et al., arXiv 2402.03791)."""

from itertools import groupby, pairwise
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.schedules.activation_memory import peaks
from meshwright.schedules.custom.check_lists import check_lists
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.micro_batch_units import unit_of
from meshwright.schedules.pipeline import Knobs
from meshwright.schedules.stage_times import StageTimes, equal_times, rounded_times
from meshwright.schedules.timeline import played

KIND = SCHEDULES["zeropp"]
SHAPES = [
    (p, v, m, u) for p in (2, 3, 4, 8) for v in (2, 3) for m in (4 * p, 8 * p) for u in (p, 2 * p, 4 * p)
]


def lists_of(p, v, m, unit=None, times=None):
    return KIND.lists(p, m, v, times, Knobs(unit=unit))


def bubble(lists, times, p, m):
    """Beside the work of a rank; all stages take equally long."""
    chunks = len(times.forward) // p
    work = m * chunks * (times.forward[0] + times.input[0] + times.weight[0])
    return played(lists, times, StageChains(p * chunks)).makespan - work


def gathers(actions, kind, unit):
    """How often a rank has to gather parameters for F or I: once for all passes of a stage and unit in a row."""
    passes = [a for a in actions if a.kind == kind]
    return len(list(groupby(passes, lambda a: (a.stage, unit_of(a.micro_batch, unit)))))


@pytest.mark.parametrize(("p", "v", "m", "unit"), SHAPES)
def test_parameters_are_gathered_once_for_each_unit_and_stage(p, v, m, unit):
    """Units · stages for F, and as many for I."""
    lists = lists_of(p, v, m, unit)
    for kind in "FI":
        assert sum(gathers(actions, kind, unit) for actions in lists) == m // unit * p * v


@pytest.mark.quick_cases(48)
@pytest.mark.parametrize(("p", "v", "m", "unit"), SHAPES)
@pytest.mark.parametrize(("forward", "half", "weight"), [(1, 1, 1), (2, 1, 1), (1, 1, 2)])
def test_the_bubble_of_equal_passes(p, v, m, unit, forward, half, weight):
    """(P−1)(F+I), and in each further unit what its weight gradients do not fill of as much."""
    stages = p * v
    times = StageTimes((forward,) * stages, (half,) * stages, (weight,) * stages)
    waits = (p - 1) * (forward + half)
    expected = waits + (m // unit - 1) * max(0, waits - v * unit * weight)
    assert bubble(lists_of(p, v, m, unit, times), times, p, m) == expected


@pytest.mark.parametrize(("p", "v", "m", "unit"), SHAPES)
def test_a_rank_holds_a_unit_and_the_weight_gradients_for_its_wait(p, v, m, unit):
    """2U of a whole rank, and for each W in the wait of 2(P−1−r) passes the half that I leaves of a chunk."""
    expected = [unit * 2 + min(unit * v, 2 * (p - 1 - rank)) * 0.5 * 2 / v for rank in range(p)]
    held = peaks(lists_of(p, v, m, unit), StageChains(p * v))
    assert all(peak <= most + 1e-9 for peak, most in zip(held, expected, strict=True))
    assert max(held) >= 2 * unit


@pytest.mark.parametrize(("p", "v"), [(4, 2), (8, 2), (4, 3)])
def test_larger_units_trade_memory_for_gathers_and_bubble(p, v):
    """With messages and a small W: each doubling gathers half as often and holds more, and none waits longer."""
    m, stages = 16 * p, p * v
    times = StageTimes((1.0,) * stages, (1.2,) * stages, (0.6,) * stages, 0.1)
    sizes = (p, 2 * p, 4 * p, 8 * p, 16 * p)
    made = [lists_of(p, v, m, unit, times) for unit in sizes]
    bubbles = [bubble(lists, times, p, m) for lists in made]
    held = [max(peaks(lists, StageChains(stages))) for lists in made]
    gathered = [gathers(lists[0], "F", unit) for lists, unit in zip(made, sizes, strict=True)]
    assert all(less <= more + 1e-9 for more, less in pairwise(bubbles))
    assert bubbles[0] > 3 * bubbles[1]
    assert all(less < more for less, more in pairwise(held))
    assert gathered == [v * m // unit for unit in sizes]


@pytest.mark.parametrize(("p", "m"), [(2, 8), (4, 12), (4, 16)])
def test_without_a_word_a_unit_is_the_ranks(p, m):
    assert lists_of(p, 2, m) == lists_of(p, 2, m, p)


def test_units_smaller_than_the_pipeline_are_refused():
    assert "unit = 3 must be pp = 4" in KIND.fault(4, 8, Knobs(unit=3))
    assert KIND.fault(4, 9, Knobs(unit=5)) is None


positive = st.floats(0.1, 5)
shapes = st.tuples(st.integers(1, 4), st.integers(2, 3)).flatmap(
    lambda shape: st.tuples(
        st.just(shape),
        st.lists(
            st.tuples(positive, positive, positive),
            min_size=shape[0] * shape[1],
            max_size=shape[0] * shape[1],
        ),
    )
)


@given(shapes, st.integers(1, 14), st.integers(0, 6), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_lists_for_any_stages_are_whole_and_hold_no_more_than_two_units(made_for, m, more, message, kept):
    (p, v), stages = made_for
    unit = p + more
    times = rounded_times(*zip(*stages, strict=True), message, kept)
    lists = lists_of(p, v, m, unit, times)
    assert [len(actions) for actions in lists] == [3 * v * m] * p
    assert check_lists(lists, memory_limit=2 * unit * (1 + times.kept) + 1e-6, kept=times.kept) == []
    assert sum(gathers(actions, "F", unit) for actions in lists) == ceil(m / unit) * p * v


def test_one_unit_of_all_is_breadth_first_with_weight_gradients_apart():
    """F and I stand as F and B of looped-bfs do, and the bubble is shorter by W on P − 1 ranks."""
    wide, whole = lists_of(4, 2, 8, 8), SCHEDULES["looped-bfs"].lists(4, 8, 2)
    order = [
        [(a.kind.replace("B", "I"), a.stage, a.micro_batch) for a in actions if a.kind != "W"]
        for actions in wide
    ]
    assert order == [
        [(a.kind.replace("B", "I"), a.stage, a.micro_batch) for a in actions] for actions in whole
    ]
    assert bubble(whole, equal_times(8), 4, 8) - bubble(wide, equal_times(8), 4, 8) == 3
