"""The order in which lists can run, and timelines in it, against the plain sweep over the ranks."""

from fractions import Fraction
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from reference_timeline import plain_run
from sample_lists import TWO_WAYS, TWO_WAYS_SHAPE, changed, legal

from meshwright.play.execution_order import DeadlockError, execution_order, order_with
from meshwright.program.lowering.step_collectives import around_passes
from meshwright.schedules.action import Action, parse_actions
from meshwright.schedules.activation_offload import OffloadedStages, with_offloads
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.stage_times import StageTimes
from meshwright.schedules.timeline import played, run, seconds_by_kind

one_kind_of_number = st.sampled_from(
    [st.integers(0, 9), st.floats(0, 9), st.fractions(0, 9, max_denominator=12)]
)


@given(legal(), st.data())
@settings(max_examples=60, deadline=None)
def test_timelines_are_those_of_the_plain_sweep_to_the_last_bit(made, data):
    lists, ways = made
    seconds = data.draw(one_kind_of_number)
    table = {
        (kind, stage): data.draw(seconds, label=f"{kind} of stage {stage}")
        for kind in "FBIW"
        for stage in range(ways.stages)
    }
    comm = data.draw(seconds)
    duration = lambda action: table[action.kind, action.stage]  # noqa: E731
    quick, plain = run(lists, duration, comm, ways), plain_run(lists, duration, comm, ways)
    assert quick == plain
    assert quick.makespan == plain.makespan


@given(legal())
@settings(max_examples=60, deadline=None)
def test_the_order_has_everything_behind_what_it_needs(made):
    lists, ways = made
    steps = execution_order(lists, ways)
    assert len(steps) == sum(map(len, lists))
    places = [0] * len(lists)
    for index, step in enumerate(steps):
        action = lists[step.rank][places[step.rank]]
        assert (action.stage, action.kind) == (step.stage, step.kind)
        places[step.rank] += 1
        for source, brings in step.sources:
            assert source < index
            assert (brings is not None) == (steps[source].rank != step.rank)


@given(legal(most_micro_batches=6), st.data())
@settings(max_examples=60, deadline=None)
def test_lists_that_can_not_finish_stop_where_the_plain_sweep_stops(made, data):
    lists, ways = made
    rank = data.draw(st.integers(0, len(lists) - 1))
    lists = changed(lists, rank, data.draw(st.permutations(lists[rank])))
    assert outcome(run, lists, ways) == outcome(plain_run, lists, ways)


def outcome(play, lists, ways):
    try:
        return play(lists, lambda _: 1, 0, ways)
    except DeadlockError as error:
        return error.waiting


def test_a_rank_that_needs_several_others_wakes_with_the_last_of_them():
    """A spread vocabulary: the backward pass of the last stage waits for S of both ranks."""
    ways = StageChains(2, barriers=1, ranks=2)
    lists = [parse_actions("0F0 2S0 0B0"), parse_actions("1F0 3S0 1B0")]
    lengths = {"F": 1, "S": 1, "B": 2}
    timeline = run(lists, lambda a: 5 if str(a) == "2S0" else lengths[a.kind], 0, ways)
    assert timeline == plain_run(lists, lambda a: 5 if str(a) == "2S0" else lengths[a.kind], 0, ways)
    assert timeline.start[1] == (1, 2, 7)


@given(legal())
@settings(max_examples=40, deadline=None)
def test_an_order_of_passes_with_more_between_them_has_what_an_order_of_all_has(made):
    lists, ways = made
    more = []
    for actions in with_offloads(lists, OffloadedStages(frozenset(range(64)), 1)):
        stages = sorted({action.stage for action in actions})
        after = {stage: [Action("REDUCE", stage), Action("FREE", stage)] for stage in stages}
        gathers = [Action("GATHER", stage) for stage in stages]
        more.append(around_passes(actions, gathers, after, overlapped=True))
    quick, all_of_them = order_with(execution_order(lists, ways), more), execution_order(more, ways)
    for rank in range(len(lists)):
        found = [[described(step, of) for step in of if step.rank == rank] for of in (quick, all_of_them)]
        assert found[0] == found[1]
    for order in (quick, all_of_them):
        for before, step in pairwise(order):  # the pass gets longer before others look at it
            assert step.kind != "REDUCE" or (before.rank == step.rank and before.stage == step.stage)


def described(step, steps):
    """A step whose sources are told by what they are, and not by their places."""
    needed = [(steps[at][:3], brings) for at, brings in step.sources]
    return step[:3], needed, None if step.gather is None else steps[step.gather][:3]


def test_two_ways_are_played_at_once():
    timeline = run(TWO_WAYS, lambda a: 1 if a.kind == "F" else 2, 0, TWO_WAYS_SHAPE)
    assert timeline.start == ((0, 1, 2, 4), (0, 1, 2, 4))
    assert timeline.makespan == timeline.latency == 6


def test_times_of_stages_and_a_message_are_those_of_each_pass():
    times = StageTimes((1, 2), (3, 4), (5, 6), message=Fraction(1, 2))
    assert seconds_by_kind(times)["B"] == [8, 10]
    lists = [parse_actions("0F0 0I0 0W0"), parse_actions("1F0 1B0")]
    timeline = played(lists, times, StageChains(2))
    assert timeline.start == ((0, 14, 17), (Fraction(3, 2), Fraction(7, 2)))
    assert timeline.end == ((1, 17, 22), (Fraction(7, 2), Fraction(27, 2)))
    assert timeline.divided(2).makespan == timeline.makespan / 2
