import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_lists import TWO_WAYS, chunks_of, sizes

from meshwright.errors import InputError
from meshwright.schedules.action import KINDS, SCOPE, Action, parse_actions
from meshwright.schedules.custom.inferred_shape import shape_of
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.generators import SCHEDULES


def refused(*texts):
    with pytest.raises(InputError) as error:
        shape_of([parse_actions(text) for text in texts])
    return error.value.problems


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("name", SCHEDULES)
def test_the_lists_of_a_schedule_say_what_they_were_made_for(name, ranks):
    kind = SCHEDULES[name]
    chunks = chunks_of(kind)
    ranks, micro_batches = sizes(kind, ranks, 2 * ranks)
    shape = shape_of(kind.lists(ranks, micro_batches, chunks))
    assert shape.placement == kind.placement(ranks, chunks)
    assert shape.ways == kind.ways(ranks, chunks)
    assert (shape.ranks, shape.chunks, shape.total) == (ranks, chunks, micro_batches)


def test_two_ways_are_recognised():
    shape = shape_of(TWO_WAYS)
    assert shape.ways == StageChains(4, chains=2)
    assert shape.placement == (0, 1, 1, 0)
    assert shape.micro_batches == ((0,), (1,))


def test_two_ways_are_still_recognised_where_one_pass_is_astray():
    lists = [
        parse_actions("0F0 3F2 0F1 3B2 0B0 3F3 0B1 3B3"),
        parse_actions("2F2 1F0 2F3 1B0 2B2 1F1 1B1 2B3 1B3"),
    ]
    assert shape_of(lists).micro_batches == ((0, 1), (2, 3))


def test_a_stage_lies_where_most_of_its_passes_are():
    lists = [parse_actions("0F0 0F1 0B0 0B1 1F1"), parse_actions("1F0 1B0 1B1")]
    assert shape_of(lists).placement == (0, 1)


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        ((), [None]),
        (("0F0 0B0", ""), [""]),
        (("0F0 0B0 STEP 0REDUCE", "1F0 1SEND_B0 1B0 1SEND_B1"), ["STEP", "0REDUCE", "1SEND_B1"]),
        (("0F0 0B0", "2F0 2B0"), ["stage 2"]),
        (("0F1 0B1", "1F1 1B1"), ["micro-batch 1"]),
        (("0F7 0B7", "9F7 9B7"), ["stage 9", "micro-batch 7"]),
    ],
)
def test_lists_without_a_shape_are_refused_with_all_reasons(texts, values):
    problems = refused(*texts)
    assert [problem.value for problem in problems] == values
    assert all(problem.rule and problem.suggestion for problem in problems)


def test_huge_numbers_are_named_and_not_counted_through():
    (problem,) = refused("0F0 0B0 999999999F0")
    assert "no pass has stage 1, 2, 3 and 999999995 others" in problem.rule
    assert problem.suggestion.startswith("number them 0 to 1")


passes = st.builds(Action, st.sampled_from("FBIW"), st.integers(0, 5), st.integers(0, 5))
strangers = st.sampled_from([kind for kind in KINDS if SCOPE[kind] == "rank"]).map(Action)


@given(st.lists(st.lists(passes | strangers, max_size=9), max_size=5))
def test_any_lists_have_a_shape_or_reasons_why_not(lists):
    shape, problems = None, []
    try:
        shape = shape_of(lists)
    except InputError as error:
        problems = error.problems
    assert (shape is None) == bool(problems)
    if shape:
        assert {action.stage for actions in lists for action in actions} == {*range(shape.ways.stages)}
        assert len(shape.micro_batches) == shape.ways.chains
