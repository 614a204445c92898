"""Which schedules a search multiplies plans with."""

import pytest

from meshwright.errors import InputError
from meshwright.schedules.choice import ScheduleChoice
from meshwright.search.space.searched_schedules import (
    LIMITS,
    all_schedules,
    named_schedules,
    usual_schedules,
    with_knobs,
)
from meshwright.stack.load import load_stack, stack_names

RANKS = (1, 2, 4, 8)
AFTER = {"step_validation": "after"}


@pytest.mark.parametrize("name", stack_names())
def test_all_schedules_are_those_of_the_stack_and_every_knob_is_one_of_both(name):
    stack = load_stack(name)
    found = all_schedules(stack, RANKS)
    assert {choice.name for choice in found} == {*stack.schedules, "1f1b"}
    assert set(usual_schedules(stack)) <= set(found)
    assert len(set(found)) == len(found)
    for choice in found:
        assert choice.heeded == choice.given_knobs.keys() <= set(stack.schedule_knobs)


def test_limits_and_units_are_tried_where_the_stack_has_them():
    found = set(all_schedules(load_stack("meshwright"), RANKS))
    assert {c.memory_limit for c in found if c.name == "zb-v"} == {None, *LIMITS}
    assert {c.unit for c in found if c.name == "interleaved-1f1b"} == {None, 4, 8, 16}
    assert {c.unit for c in found if c.name == "looped-bfs"} == {None, 2, 4, 8, 16}
    assert {c.name for c in all_schedules(load_stack("megatron-core"), RANKS)} == {"1f1b", "interleaved-1f1b"}
    assert all(c.usual for c in all_schedules(load_stack("megatron-core"), RANKS))


def test_a_stack_that_knows_it_may_be_asked_to_validate_its_steps_afterwards():
    found = with_knobs(usual_schedules(load_stack("meshwright")), AFTER, load_stack("meshwright"))
    assert {choice.step_validation for choice in found} == {"after"}
    assert all(choice.usual for choice in found)
    assert with_knobs(found, AFTER, load_stack("megatron-core")) == ()


def test_every_form_of_a_spread_vocabulary_is_tried_where_schedule_and_stack_have_it():
    found = all_schedules(load_stack("meshwright"), RANKS)
    assert {c.vocabulary for c in found if c.name == "1f1b"} == {None, "vocab-1", "vocab-2", "interlaced"}
    assert {c.vocabulary for c in found if c.name == "zb-v"} == {None, "vocab-1", "vocab-2"}
    assert {c.vocabulary for c in found if c.name == "dualpipe"} == {None}
    assert {c.step_validation for c in found} == {None, "after"}
    zero_bubble = all_schedules(load_stack("megatron-zero-bubble"), RANKS)
    assert {c.step_validation for c in zero_bubble if c.name == "zb-h1"} == {None, "before"}
    assert {c.step_validation for c in zero_bubble if c.name == "1f1b"} == {None, "after"}


def test_the_place_of_the_vocabulary_can_be_kept():
    stack = load_stack("meshwright")
    found = all_schedules(stack, RANKS)
    ends = with_knobs(found, {"vocabulary": "none"}, stack)
    assert ends == tuple(choice for choice in found if choice.vocabulary is None)
    laced = with_knobs(usual_schedules(stack), {"vocabulary": "interlaced"}, stack)
    assert laced == (ScheduleChoice("1f1b", vocabulary="interlaced"),)
    assert with_knobs(found, {"vocabulary": "vocab-1"}, load_stack("megatron-core")) == ()


def test_names_are_taken_in_their_order_and_once():
    stack = load_stack("meshwright")
    assert named_schedules("zb-v, 1f1b,zb-v", stack, "schedule") == (
        ScheduleChoice("zb-v"),
        ScheduleChoice("1f1b"),
    )


def test_all_wrong_names_come_at_once():
    with pytest.raises(InputError) as caught:
        named_schedules("zb-w,1f1b,v-half,dualpipes", load_stack("torchtitan"), "keep.schedule")
    assert [(p.field, p.value) for p in caught.value.problems] == [
        ("keep.schedule", "zb-w"),
        ("keep.schedule", "v-half"),
        ("keep.schedule", "dualpipes"),
    ]


def test_auto_stands_alone():
    with pytest.raises(InputError, match="stands alone"):
        named_schedules("1f1b,auto", load_stack("meshwright"), "schedule")
