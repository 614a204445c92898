import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.schedules.action import KINDS, SCOPE, Action, format_actions, parse_actions

number = st.integers(0, 10**9 - 1)


@st.composite
def actions(draw: st.DrawFn) -> Action:
    kind = draw(st.sampled_from(KINDS))
    stage = draw(number) if SCOPE[kind] != "rank" else None
    return Action(kind, stage, draw(number) if SCOPE[kind] == "pass" else None)


@given(st.lists(actions(), max_size=20))
def test_text_round_trip(listed):
    assert parse_actions(format_actions(listed)) == listed


@given(st.lists(actions(), max_size=8), st.sampled_from((" ", "\n", "\t ", "  \n")))
def test_any_white_space_separates(listed, space):
    assert parse_actions(space.join(map(str, listed))) == listed


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("2F0", Action("F", 2, 0)),
        ("1I3", Action("I", 1, 3)),
        ("0SEND_F12", Action("SEND_F", 0, 12)),
        ("1REDUCE", Action("REDUCE", 1)),
        ("STEP", Action("STEP")),
        ("REDUCE_TIED", Action("REDUCE_TIED")),
    ],
)
def test_text_of_actions(text, action):
    assert parse_actions(text) == [action]
    assert str(action) == text


def test_all_wrong_words_are_reported_at_once():
    with pytest.raises(InputError) as error:
        parse_actions("0F0 1X0 F STEP3 2REDUCE0 1NORM 0B F0 -1F0 1.5F0 ٢F0 " + "9" * 5000 + "F0")
    values = [problem.value for problem in error.value.problems]
    assert values[:-1] == ["1X0", "F", "STEP3", "2REDUCE0", "1NORM", "0B", "F0", "-1F0", "1.5F0", "٢F0"]
    assert all(problem.suggestion for problem in error.value.problems)


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("0RECV", "RECV_F"),
        ("F0", "2F0"),
        ("0REDUCE1", "2REDUCE"),
        ("0STEP", "write the kind alone: STEP"),
        ("!", "2F0"),
    ],
)
def test_suggestions_say_what_would_be_right(word, hint):
    with pytest.raises(InputError) as error:
        parse_actions(word)
    assert hint in error.value.problems[0].suggestion


def test_no_actions():
    assert parse_actions("") == []
    assert format_actions([]) == ""
