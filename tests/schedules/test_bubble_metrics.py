"""Figures of schedules against closed forms, published tables and conservation laws."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_lists import TWO_WAYS, TWO_WAYS_SHAPE, legal

from meshwright.schedules.action import parse_actions
from meshwright.schedules.bubble_metrics import figures_of
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.stage_times import StageTimes, equal_times
from meshwright.schedules.timeline import played

ONE = Fraction(1)


def figures(lists, ways, times=None):
    times = times or equal_times(ways.stages)
    return figures_of(lists, played(lists, times, ways), times, ways)


def of(name, ranks, micro_batches, chunks=1, forward=ONE, input_=ONE, weight=ONE, message=0):
    """A schedule whose ranks take ``forward``, ``input_`` and ``weight`` for a whole micro-batch."""
    kind = SCHEDULES[name]
    ways = kind.ways(ranks, chunks)
    parts = ((time * ranks / ways.length,) * ways.stages for time in (forward, input_, weight))
    return figures(kind.lists(ranks, micro_batches, chunks), ways, StageTimes(*parts, message))


@pytest.mark.parametrize(("p", "m"), [*product((2, 3, 4, 8), (8, 16, 24))])
def test_bubble_rates_of_the_closed_forms(p, m):
    """(P−1)/M for GPipe and 1F1B, (P−1)/(V·M) for interleaved (Megatron-LM, arXiv 2104.04473, section 2.2)."""
    assert of("gpipe", p, m).bubble_rate == of("1f1b", p, m).bubble_rate == Fraction(p - 1, m)
    for v in (2, 4):
        if m % p == 0:
            assert of("interleaved-1f1b", p, m, v).bubble_rate == Fraction(p - 1, v * m)


@pytest.mark.parametrize(("p", "m"), [(4, 8), (4, 12), (8, 24), (8, 32), (16, 48)])
def test_zero_bubble_has_none_with_twice_the_memory(p, m):
    """Qi et al. (arXiv 2401.10241), sections 2.2 and 2.3, at equal times."""
    assert of("zb-h2", p, m).bubble_rate == 0
    assert 0 < of("zb-h1", p, m).bubble_rate <= (p - 1) / (3 * m) + 1 / m


@pytest.mark.parametrize(("p", "m"), [(2, 8), (4, 12), (8, 24)])
def test_peak_memory_of_the_closed_forms(p, m):
    """In F of a micro-batch over a whole rank (2): GPipe M, 1F1B P − r."""
    assert of("gpipe", p, m).peak_memory == (2.0 * m,) * p
    assert of("1f1b", p, m).peak_memory == tuple(2.0 * (p - rank) for rank in range(p))
    for v in (2, 3):
        first = of("interleaved-1f1b", p, m, v).peak_memory[0]
        assert first == pytest.approx(2 * (2 * (p - 1) + (v - 1) * p + 1) / v)
    assert max(of("zb-h1", p, m).peak_memory) <= 2 * p
    assert max(of("zb-h2", p, m).peak_memory) <= 4 * p


@pytest.mark.parametrize(("p", "m"), [(2, 8), (4, 12), (8, 24)])
@pytest.mark.parametrize(
    ("name", "chunks", "volume"),
    [("gpipe", 1, 1), ("1f1b", 1, 1), ("zb-h1", 1, 1), ("zb-h2", 1, 1), ("v-half", 2, 2), ("v-min", 2, 2)],
)
def test_messages_beside_those_of_1f1b(name, chunks, volume, p, m):
    """The table of the controllable-memory schedules (Qi et al., arXiv 2405.15362): 1, 1, 1, 2, 2."""
    found = of(name, p, m, chunks)
    assert found.p2p_volume == volume
    assert sum(found.messages) == volume * 2 * (p - 1) * m
    loop = of("interleaved-1f1b", p, m, 2)
    assert loop.p2p_volume == pytest.approx((2 * p - 1) / (p - 1))


def test_a_single_rank_sends_nothing_and_has_no_volume():
    found = of("1f1b", 1, 4)
    assert (found.messages, found.p2p_volume, found.bubble_rate) == ((0,), None, 0)


def test_two_ways_hold_the_model_twice_and_send_as_often_as_one():
    found = figures(TWO_WAYS, TWO_WAYS_SHAPE)
    assert found.parameters_held == 2
    assert found.p2p_volume == 1
    assert found.messages == (2, 2)
    assert found.peak_memory == (4, 4)
    assert found.bubble_rate == 0


def test_ranks_with_unequal_numbers_of_stages_are_measured_by_the_whole_model():
    """Three stages on two ranks: each holds 2/3 of a rank's part, the first rank has two of them."""
    lists = [parse_actions("0F0 1F0 1B0 0B0"), parse_actions("2F0 2B0")]
    found = figures(lists, StageChains(3))
    assert found.parameters_held == pytest.approx(4 / 3)
    assert found.peak_memory == pytest.approx((8 / 3, 4 / 3))
    assert found.messages == (1, 1)


@pytest.mark.parametrize("slow", range(4))
def test_the_bubble_is_beside_the_work_of_the_busiest_rank(slow):
    times = [ONE] * 4
    times[slow] = 3 * ONE
    stages = StageTimes(*(tuple(times),) * 3)
    found = figures(SCHEDULES["1f1b"].lists(4, 32, 1), StageChains(4), stages)
    assert found.bubble_rate == pytest.approx(found.makespan / (32 * 9) - 1)
    assert max(found.busy) == found.busy[slow] == pytest.approx(1 / (1 + found.bubble_rate))
    others = [share for rank, share in enumerate(found.busy) if rank != slow]
    assert others == pytest.approx([found.busy[slow] / 3] * 3)


@given(legal(), st.fractions(0, 4), st.fractions(0, 4), st.fractions(Fraction(1, 4), 4), st.fractions(0, 4))
@settings(max_examples=60, deadline=None)
def test_laws_of_all_figures(made, forward, input_, weight, message):
    lists, ways = made
    times = StageTimes(*((time,) * ways.stages for time in (forward, input_, weight)), message)
    found = figures(lists, ways, times)
    assert found.latency >= found.makespan > 0
    assert found.bubble_rate >= 0
    assert max(found.busy) == pytest.approx(1 / (1 + found.bubble_rate))
    assert all(0 < share <= 1 for share in found.busy)
    slower = figures(lists, ways, replace(times, message=message + 1))
    assert slower.makespan >= found.makespan
    assert (slower.peak_memory, slower.messages) == (found.peak_memory, found.messages)
    twice = StageTimes(*((2 * t,) * ways.stages for t in (forward, input_, weight)), 2 * message)
    assert figures(lists, ways, twice).makespan == 2 * found.makespan
