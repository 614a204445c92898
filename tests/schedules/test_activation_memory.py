import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_lists import legal

from meshwright.play.in_flight import most_in_flight
from meshwright.schedules.action import parse_actions
from meshwright.schedules.activation_memory import levels, peaks
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.pipeline import PASS_MEMORY


def test_memory_of_a_short_list():
    actions = parse_actions("0F0 0F1 0I0 0W0 0B1")
    assert levels(actions, 4, StageChains(4)) == [2, 4, 3, 2, 0]
    assert levels(actions, 4, StageChains(4), kept=0.75) == [2, 4, 3.5, 2, 0]
    assert levels(actions, 4, StageChains(8)) == [1, 2, 1.5, 1, 0]
    assert levels(actions, 4, StageChains(8, chains=2)) == [2, 4, 3, 2, 0]


def test_other_actions_hold_nothing():
    assert levels(parse_actions("0GATHER 0F0 0SEND_F0 0RECV_B0 0B0 0FREE"), 1, StageChains(1)) == [
        0,
        2,
        2,
        2,
        0,
        0,
    ]


def test_three_chunks_fill_a_rank_without_a_remainder():
    assert levels(parse_actions("0F0 1F0 2F0"), 1, StageChains(3))[-1] == 2.0


@given(legal(), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_what_is_held_is_never_negative_and_nothing_in_the_end(made, kept):
    lists, ways = made
    for actions in lists:
        held = levels(actions, len(lists), ways, kept)
        assert min(held) >= 0
        assert held[-1] == 0
    assert max(peaks(lists, ways, kept)) <= max(peaks(lists, ways, 1.0))


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved-1f1b"])
def test_whole_backward_passes_hold_what_is_in_flight(name):
    kind = SCHEDULES[name]
    chunks = 2 if kind.chunked else 1
    lists, ways = kind.lists(4, 12, chunks), kind.ways(4, chunks)
    assert peaks(lists, ways) == tuple(PASS_MEMORY / chunks * most_in_flight(actions) for actions in lists)
