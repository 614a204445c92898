"""The validator of bare lists: legal changes stay legal, planted faults are named."""

from graphlib import CycleError, TopologicalSorter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sample_lists import TWO_WAYS, changed, chunks_of, legal, sizes

from meshwright.schedules.action import Action, parse_actions
from meshwright.schedules.activation_memory import peaks
from meshwright.schedules.custom.check_lists import MOST, CheckedLists, check_lists, no_deadlock
from meshwright.schedules.custom.inferred_shape import Shape, shape_of
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.generators import SCHEDULES

MANY = settings(max_examples=80, deadline=None)


def places(lists, kinds="FBIW"):
    return [
        (rank, position)
        for rank, actions in enumerate(lists)
        for position, action in enumerate(actions)
        if action.kind in kinds
    ]


def values(problems):
    return [problem.value for problem in problems]


def checked(*texts, **options):
    return check_lists([parse_actions(text) for text in texts], **options)


@pytest.mark.quick_cases(100)
@pytest.mark.parametrize("micro_batches", [1, 2, 8, 12])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_legal_and_within_what_it_holds(name, ranks, micro_batches):
    kind = SCHEDULES[name]
    chunks = chunks_of(kind)
    ranks, micro_batches = sizes(kind, ranks, micro_batches)
    lists = kind.lists(ranks, micro_batches, chunks)
    peak = max(peaks(lists, kind.ways(ranks, chunks)))
    assert check_lists(lists, memory_limit=peak) == []


@given(legal(), st.data())
@MANY
def test_weight_gradients_may_wait(made, data):
    lists, ways = made
    weights = places(lists, "W")
    assume(weights)
    rank, position = data.draw(st.sampled_from(weights))
    actions = list(lists[rank])
    actions.insert(data.draw(st.integers(position, len(actions) - 1)), actions.pop(position))
    lists = changed(lists, rank, actions)
    assert check_lists(lists, memory_limit=max(peaks(lists, ways))) == []


def needs(lists, length):
    """What each pass waits for, from scratch: its list, and results of neighbouring stages of its way."""
    graph = {}
    for actions in lists:
        for before, action in zip([None, *actions], actions, strict=False):
            stage, m = action.stage, action.micro_batch
            inputs = {
                "F": [Action("F", stage - 1, m)] if stage % length else [],
                "W": [Action("I", stage, m)],
            }.get(action.kind, [Action("F", stage, m)])
            if action.kind in "BI" and (stage + 1) % length:
                inputs += [Action("B", stage + 1, m), Action("I", stage + 1, m)]
            graph[action] = {*inputs, before} - {None}
    return {action: inputs & graph.keys() for action, inputs in graph.items()}


def is_circular(graph):
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return True
    return False


@given(legal(most_micro_batches=6), st.data())
@MANY
def test_neighbours_that_change_places_are_legal_just_when_no_circle_arises(made, data):
    lists, ways = made
    rank, position = data.draw(st.sampled_from(places(lists)))
    assume(position + 1 < len(lists[rank]))
    actions = list(lists[rank])
    actions[position : position + 2] = reversed(actions[position : position + 2])
    lists = changed(lists, rank, actions)
    assert bool(check_lists(lists)) == is_circular(needs(lists, ways.length))


@given(legal(most_micro_batches=6), st.data())
@MANY
def test_any_order_is_legal_just_when_there_is_no_circle(made, data):
    lists, ways = made
    rank = data.draw(st.integers(0, len(lists) - 1))
    lists = changed(lists, rank, data.draw(st.permutations(lists[rank])))
    problems = check_lists(lists)
    assert bool(problems) == is_circular(needs(lists, ways.length))
    assert all(problem.rule and problem.suggestion for problem in problems)


@given(legal(), st.data())
@MANY
def test_a_missing_pass_is_named(made, data):
    lists, _ = made
    rank, position = data.draw(st.sampled_from(places(lists)))
    gone = lists[rank][position]
    assume(len(lists[rank]) > 1)
    lists = changed(lists, rank, lists[rank][:position] + lists[rank][position + 1 :])
    (problem,) = check_lists(lists)
    assert (problem.field, problem.value) == (f"lists.{rank}", str(gone))
    assert problem.rule == "is missing"


@given(legal(), st.data())
@MANY
def test_a_doubled_pass_is_named(made, data):
    lists, _ = made
    rank, position = data.draw(st.sampled_from(places(lists)))
    double = lists[rank][position]
    actions = list(lists[rank])
    actions.insert(data.draw(st.integers(position + 1, len(actions))), double)
    (problem,) = check_lists(changed(lists, rank, actions))
    assert (problem.field, problem.value) == (f"lists.{rank}", str(double))
    assert problem.rule == "is there 2 times"


@given(legal(most_micro_batches=8), st.data())
@MANY
def test_a_pass_on_another_rank_is_named(made, data):
    lists, ways = made
    rank, position = data.draw(st.sampled_from(places(lists)))
    other = data.draw(st.sampled_from([r for r in range(len(lists)) if r != rank]))
    astray = lists[rank][position]
    assume(sum(action.stage == astray.stage for action in lists[rank]) > 2)
    lists = changed(lists, rank, lists[rank][:position] + lists[rank][position + 1 :])
    lists = changed(lists, other, [*lists[other], astray])
    assert shape_of(lists).ways == ways
    (wrong,) = [p for p in check_lists(lists) if "lies on rank" in p.rule]
    assert (wrong.field, wrong.value) == (f"lists.{other}", str(astray))


@given(legal(), st.data())
@MANY
def test_a_rank_over_the_limit_is_named_with_how_much(made, data):
    lists, ways = made
    held = peaks(lists, ways)
    limit = data.draw(st.sampled_from(sorted(set(held)))) - 0.25
    problems = check_lists(lists, memory_limit=limit)
    assert [p.field for p in problems] == [f"lists.{rank}" for rank, peak in enumerate(held) if peak > limit]
    for problem in problems:
        peak = held[int(problem.field.removeprefix("lists."))]
        assert f"at most {peak:g}, {peak - limit:g} too much" in problem.rule


def test_the_first_pass_over_the_limit_and_the_worst_are_named():
    (problem,) = checked("0F0 0F1 0B0 0F2 0F3 0B1 0B2 0B3", memory_limit=3)
    assert problem.value == "0F1"
    assert problem.rule == (
        "rank 0 holds 4 > 3, the limit, with 0F1 at 1; at most 6, 3 too much, with 0F3 at 4"
    )


def test_what_waits_for_w_counts_as_much_as_is_kept():
    texts = ("0F0 0I0 0F1 0I1 0W0 0W1",)
    assert checked(*texts, memory_limit=3) == []
    assert len(checked(*texts, memory_limit=3, kept=0.75)) == 1


def test_ranks_that_wait_for_each_other_are_named_with_what_would_help():
    (problem,) = checked("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1")
    assert problem.value == "0B0 1F1"
    assert "0B0 on rank 0 for 1B0 on rank 1, behind 1F1" in problem.rule
    assert "1F1 on rank 1 for 0F1 on rank 0, behind 0B0" in problem.rule
    assert problem.suggestion in ("1B0 before 1F1 in list 1", "0F1 before 0B0 in list 0")


def test_a_rank_that_waits_for_a_circle_is_not_part_of_it():
    (problem,) = checked("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1", "2F0 2F1 2B1 2B0")
    assert problem.value == "0B0 1F1"


def test_every_circle_is_named():
    """Two ways, each of two ranks of its own pair of stages, that have nothing to do with each other."""
    lists = ["0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1", "2F2 2B2 2F3 2B3", "3F2 3F3 3B2 3B3"]
    shape = Shape(4, (0, 1, 2, 3), StageChains(4, chains=2), ((0, 1), (2, 3)))
    case = CheckedLists([parse_actions(text) for text in lists], shape)
    assert values(no_deadlock(case)) == ["0B0 1F1", "2B2 3F3"]


def test_a_pass_before_what_it_needs_on_its_rank_is_named_once():
    (problem,) = checked("0F0 0W0 0I0")
    assert (problem.field, problem.value, problem.suggestion) == ("lists.0", "0W0", "0I0 before 0W0")
    (problem,) = checked("0B0 0F0", "1F0 1B0")
    assert problem.value == "0B0"


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (("0F0 0B0 0I0 0W0",), {"0B0"}),
        (("0F0 0B0 0W0",), {"0B0", "0I0"}),
        (("0F0 0F1 0B0",), {"0B1"}),
        (("0F0 0F1 0I0 0W0",), {"0I1", "0W1"}),
        (("0F0 0B0 0B0", "1F0 1F0 1B0"), {"0B0", "1F0"}),
    ],
)
def test_backward_passes_are_whole_or_split(texts, named):
    assert set(values(checked(*texts))) == named


def test_a_mixture_of_whole_and_split_backward_passes_is_legal():
    assert checked("0F0 0F1 0B0 0I1 0W1", "1F0 1F1 1I0 1B1 1W0") == []


def test_two_ways_are_legal_and_a_micro_batch_on_the_wrong_one_is_not():
    assert check_lists(TWO_WAYS) == []
    lists = [
        parse_actions("0F0 3F2 0F1 3B2 0B0 3F3 0B1 3B3 0F2"),
        parse_actions("2F2 1F0 2F3 1B0 2B2 1F1 1B1 2B3"),
    ]
    (problem,) = check_lists(lists)
    assert (problem.field, problem.value) == ("lists.0", "0F2")
    assert "goes the other way" in problem.rule


def test_all_faults_come_at_once():
    problems = checked("0F0 0F1 0B0 0B1 1F0", "1B0 1F1 1B1")
    assert values(problems) == ["1F0"]
    problems = checked("0F0 0F0 0F1 0B0", "1F1 1B0 1F0 1B1")
    assert set(values(problems)) == {"0F0", "0B1", "1B0"}


def test_of_very_many_faults_the_first_are_named():
    problems = checked(" ".join(f"0F{m}" for m in range(1000)))
    assert len(problems) == MOST + 1
    assert values(problems)[:2] == ["0B0", "0B1"]
    assert "more than" in problems[-1].rule


def test_lists_without_a_shape_are_problems_and_nothing_is_raised():
    assert values(check_lists([])) == [None]
    assert values(checked("STEP", "")) == ["STEP", ""]


anything = st.lists(
    st.lists(st.builds(Action, st.sampled_from("FBIW"), st.integers(0, 3), st.integers(0, 3)), max_size=12),
    max_size=4,
)


@given(anything, st.one_of(st.none(), st.floats(0.5, 8)))
@settings(max_examples=180, deadline=None)
def test_any_lists_are_judged_without_an_exception(lists, limit):
    problems = check_lists(lists, memory_limit=limit)
    assert all(problem.rule and problem.suggestion for problem in problems)
    if not problems:
        shape = shape_of(lists)
        assert not is_circular(needs(lists, shape.ways.length))
