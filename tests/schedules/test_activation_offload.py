"""Which passes go to the host, and where their copies stand: a function of any list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_orders import drawn_order
from sample_lists import chunks_of, legal, sizes

from meshwright.schedules.action import PASS_KINDS, format_actions
from meshwright.schedules.activation_offload import COPIES, OffloadedStages, OffloadRule, with_offloads
from meshwright.schedules.generators import SCHEDULES

ALL = frozenset(range(100))


def test_the_copies_of_1f1b_on_four_ranks():
    lists = with_offloads(SCHEDULES["1f1b"].lists(4, 5, 1), OffloadedStages(ALL, 1))
    assert list(map(format_actions, lists)) == [
        "0F0 0OFFLOAD0 0F1 0OFFLOAD1 0F2 0OFFLOAD2 0RELOAD0 0F3 0OFFLOAD3 0B0 0RELOAD1 0F4 0OFFLOAD4 "
        "0RELOAD2 0B1 0RELOAD3 0B2 0RELOAD4 0B3 0B4",
        "1F0 1F1 1OFFLOAD1 1F2 1OFFLOAD2 1B0 1RELOAD1 1F3 1OFFLOAD3 1B1 1RELOAD2 1F4 1RELOAD3 1B2 1B3 1B4",
        "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2B4",
        "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4",
    ]


@given(legal(), st.integers(1, 4), st.data())
def test_each_pass_that_is_held_for_long_goes_out_and_comes_back(drawn, ahead, data):
    lists, ways = drawn
    stages = data.draw(st.frozensets(st.integers(0, ways.stages - 1)))
    hold_the_rule(lists, OffloadedStages(stages, ahead))


@given(st.integers(1, 4), st.integers(1, 5), st.booleans(), st.integers(0, 1000))
def test_orders_of_any_kind_have_their_copies_too(ahead, micro_batches, split, seed):
    hold_the_rule(
        drawn_order((0, 1, 1, 0), micro_batches, split, seed), OffloadedStages(frozenset({0, 3}), ahead)
    )


def hold_the_rule(lists, copied):
    """A pass goes out if two others fit in between besides those ahead; its copies stand where the rule puts them."""
    for actions, found in zip(lists, with_offloads(lists, copied), strict=True):
        assert [action for action in found if action.kind not in COPIES] == list(actions)
        turns = {(a.kind, a.stage, a.micro_batch): turn for turn, a in enumerate(actions)}
        for (kind, *which), turn in turns.items():
            if kind not in ("B", "I"):
                continue
            between = turn - turns["F", *which] - 1
            copies = [
                at for at, a in enumerate(found) if [a.stage, a.micro_batch] == which and a.kind in COPIES
            ]
            assert len(copies) == (2 if between >= copied.ahead + 2 and which[0] in copied.stages else 0)
            if copies:
                out, back = copies
                assert found[out - 1] == actions[turns["F", *which]]
                passes = [a for a in found[back:] if a.kind in PASS_KINDS]
                assert passes[copied.ahead] == actions[turn]


@pytest.mark.parametrize("ahead", [1, 2])
@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_a_rank_holds_no_more_with_copies_than_without(name, ahead):
    kind = SCHEDULES[name]
    chunks = chunks_of(kind)
    ranks, micro_batches = sizes(kind, 4, 12)
    lists = kind.lists(ranks, micro_batches, chunks)
    for before, after in zip(lists, with_offloads(lists, OffloadedStages(ALL, ahead)), strict=True):
        assert most_held(after) <= most_held(before)


@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_under_1f1b_ranks_hold_what_is_ahead_and_two_passes_more(ranks):
    for ahead in (1, 2):
        copied = with_offloads(SCHEDULES["1f1b"].lists(ranks, 3 * ranks, 1), OffloadedStages(ALL, ahead))
        most = [most_held(actions) for actions in copied]
        assert most == [min(ranks - rank, ahead + 2) for rank in range(ranks)]


def most_held(actions):
    """Passes between F and B or I that are on the device; what goes out leaves with the pass behind it."""
    held = most = leaving = 0
    for action in actions:
        held += {"F": 1, "RELOAD": 1, "B": -1, "I": -1}.get(action.kind, 0)
        most = max(most, held)
        if action.kind in PASS_KINDS:
            held, leaving = held - leaving, 0
        leaving += action.kind == "OFFLOAD"
    return most


def test_a_share_of_a_stages_layers_is_rounded_up():
    assert [OffloadRule(0.5).layers_out(layers) for layers in range(5)] == [0, 1, 1, 2, 2]
    assert [OffloadRule(0.1).layers_out(layers) for layers in (1, 10, 11, 30)] == [1, 1, 2, 3]
    assert OffloadRule().layers_out(7) == 0
    assert OffloadRule(1.0).layers_out(7) == 7
