"""The embedding's passes in lists of a vocabulary that is spread: once each, one order, in time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import UnsupportedError
from meshwright.play.execution_order import NOBODY, execution_order
from meshwright.schedules.action import Action, parse_actions
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.stage_times import ShareTimes, StageTimes, equal_times, rounded_times
from meshwright.schedules.vocabulary import FORMS
from meshwright.schedules.vocabulary.embedding_passes import with_embedding_passes

ALLOWED = [
    (name, form)
    for name, kind in SCHEDULES.items()
    for form in FORMS
    if kind.chains == 1 and FORMS[form].only in (None, name)
]


def chunks_of(name):
    kind = SCHEDULES[name]
    return kind.fixed_chunks or (2 if kind.chunked else 1)


@given(st.data(), st.sampled_from(ALLOWED), st.sampled_from((2, 3, 4)), st.integers(1, 3))
@settings(max_examples=48, deadline=None)
def test_every_schedule_has_every_pass_of_a_share_once_and_can_be_played(data, allowed, ranks, rounds):
    (name, form), chunks = allowed, chunks_of(allowed[0])
    count = ranks * rounds
    seconds = st.integers(0, 9).map(float)
    rows = [tuple(data.draw(seconds) for _ in range(ranks * chunks)) for _ in range(3)]
    times = StageTimes(*rows, data.draw(seconds), 0.5, ShareTimes(data.draw(seconds), data.draw(seconds)))
    choice = ScheduleChoice(name, vocabulary=form)
    lists = choice.lists(ranks, count, chunks, times)
    for rank, actions in enumerate(lists):
        share = ranks * chunks + rank
        orders = {kind: [a.micro_batch for a in actions if a.kind == kind] for kind in "ESTD"}
        assert {a.stage for a in actions if a.kind in orders} == {share}
        assert all(sorted(order) == list(range(count)) for order in orders.values())
        first = {kind: [a.micro_batch for a in lists[0] if a.kind == kind] for kind in "ESTD"}
        assert orders == first
    steps = execution_order(lists, choice.ways(ranks, chunks))
    assert sum(step.rank != NOBODY for step in steps) == sum(map(len, lists))


def test_rows_are_looked_up_a_micro_batch_ahead_and_their_gradients_added_one_behind():
    lists = [
        parse_actions("0F0 0F1 2S0 2T0 0B0 2S1 2T1 0B1"),
        parse_actions("1F0 3S0 3T0 1B0 1F1 3S1 3T1 1B1"),
    ]
    times = StageTimes((1.0, 1.0), (2.0, 2.0), (0.0, 0.0), 0.0, 0.5, ShareTimes(1.0, 1.0))
    found = with_embedding_passes(lists, (0, 1), times, StageChains(2, barriers=2, ranks=2))
    assert found[0] == parse_actions("2E0 2E1 0F0 0F1 2S0 2T0 0B0 2S1 2T1 0B1 2D0 2D1")
    assert found[1][:2] == [Action("E", 3, 0), Action("E", 3, 1)]
    assert found[1][-1] == Action("D", 3, 1)


def test_a_choice_with_a_form_depends_on_times_and_on_nothing_usual():
    plain, spread = ScheduleChoice("1f1b"), ScheduleChoice("1f1b", vocabulary="vocab-2")
    assert (plain.automatic, plain.usual) == (False, True)
    assert (spread.automatic, spread.usual) == (True, False)
    assert str(spread) == "1f1b+vocab-2"
    assert spread.declared_in_flight(0, 4, 8, 1) is None
    ways = spread.ways(4, 1)
    assert (ways.barriers, ways.ranks, ways.rows) == (1, 4, True)


def test_without_times_the_head_takes_as_long_as_a_stage():
    choice = ScheduleChoice("1f1b", vocabulary="vocab-1")
    told = StageTimes(*equal_times(4).__getstate__()[:4], 0.5, ShareTimes(0.25, 0.5))
    assert choice.lists(4, 8, 1) == choice.lists(4, 8, 1, told)


def test_shares_are_rounded_in_coarser_steps():
    exact = rounded_times((1.0,), (1.0,), (1.0,), 0.0, 0.5)
    spread = rounded_times((1.0,), (1.0,), (1.0,), 0.0, 0.5, ShareTimes(0.26, 0.5))
    assert exact.forward == (40.0,)
    assert (spread.forward, spread.share) == ((10.0,), ShareTimes(3.0, 5.0))


def test_a_form_that_a_schedule_can_not_have_is_refused():
    with pytest.raises(UnsupportedError):
        ScheduleChoice("zb-v", vocabulary="interlaced").lists(2, 4, 2)
