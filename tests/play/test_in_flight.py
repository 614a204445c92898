"""Counts along a list: by hand, and laws that hold for every schedule."""

from collections import Counter

from hypothesis import given, settings
from sample_lists import legal

from meshwright.play.in_flight import Change, changes_along, held_change, host_changes, most_in_flight
from meshwright.schedules.action import parse_actions
from meshwright.schedules.activation_offload import OffloadedStages, with_offloads


def test_copies_leave_when_the_pass_behind_has_ended_and_are_back_when_they_begin():
    actions = parse_actions("0F0 0OFFLOAD0 0GATHER 0F1 0RELOAD0 0I1 0B0 0W1")
    assert list(changes_along(actions)) == [
        Change(0, 0, 1, 0, 0),
        Change(1, 0, 0, 0, 0),
        Change(3, 0, 1, 0, 0),
        Change(3, 0, 0, 0, 1),
        Change(4, 0, 0, 0, -1),
        Change(5, 0, -1, 1, 0),
        Change(6, 0, -1, 0, 0),
        Change(7, 0, 0, -1, 0),
    ]
    assert list(host_changes(actions)) == [(0, 1), (0, -1)]


def test_a_share_of_a_vocabulary_is_held_from_s_to_t():
    assert [change[2:] for change in changes_along(parse_actions("2E0 2S0 2T0 2D0"))] == [
        (0, 0, 0),
        (1, 0, 0),
        (-1, 0, 0),
        (0, 0, 0),
    ]


def test_a_backward_pass_frees_what_its_halves_free():
    kept, left = 7, 3
    halves = held_change("I", kept, left) + held_change("W", kept, left)
    assert halves == held_change("B", kept, left) == -held_change("F", kept, left)


@given(legal())
@settings(max_examples=60, deadline=None)
def test_everything_is_held_once_and_let_go(made):
    lists, _ = made
    for actions in with_offloads(lists, OffloadedStages(frozenset(range(64)), 1)):
        held, away = Counter(), Counter()
        for _, stage, waiting, for_weights, on_host in changes_along(actions):
            held[stage] += waiting + for_weights
            away[stage] += on_host
            assert held[stage] >= away[stage] >= 0
        assert not any(held.values())
        assert not any(away.values())
        assert sum(n for _, n in host_changes(actions)) == 0


def test_a_list_without_passes_holds_nothing():
    assert most_in_flight([]) == most_in_flight(parse_actions("STEP")) == 0
