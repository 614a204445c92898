"""What a plan says of its schedule: knobs in the plan's units, and what is as usual."""

import pytest

from meshwright.schedules.activation_memory import peaks
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.pipeline import USUAL, Knobs

RANKS, COUNT = 4, 16
LIMITED = [name for name, kind in SCHEDULES.items() if "memory_limit" in kind.depends_on]
IN_UNITS = [name for name, kind in SCHEDULES.items() if "unit" in kind.depends_on]


def chunks_of(name):
    kind = SCHEDULES[name]
    return kind.fixed_chunks or (2 if kind.chunked else 1)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_name_alone_means_what_the_table_says(name):
    choice, kind, chunks = ScheduleChoice(name), SCHEDULES[name], chunks_of(name)
    assert choice.usual
    assert str(choice) == name
    assert choice.knobs(RANKS) == USUAL
    assert choice.lists(RANKS, COUNT, chunks) == kind.lists(RANKS, COUNT, chunks)
    assert (choice.steady_rounds, choice.period(RANKS)) == (kind.steady_rounds, RANKS)
    declared = kind.in_flight and kind.in_flight(1, RANKS, COUNT, chunks)
    assert choice.declared_in_flight(1, RANKS, COUNT, chunks) == declared


@pytest.mark.parametrize("name", LIMITED)
@pytest.mark.parametrize("limit", [0.5, 1.0, 1.5])
def test_a_limit_counts_in_times_of_what_1f1b_holds(name, limit):
    of_1f1b = max(peaks(ScheduleChoice("1f1b").lists(RANKS, COUNT, 1), SCHEDULES["1f1b"].ways(RANKS, 1)))
    choice, chunks = ScheduleChoice(name, memory_limit=limit), chunks_of(name)
    assert choice.knobs(RANKS) == Knobs(memory_limit=limit * of_1f1b)
    held = max(peaks(choice.lists(RANKS, COUNT, chunks), choice.kind.ways(RANKS, chunks)))
    assert held <= limit * of_1f1b
    assert (held > 0.5 * of_1f1b) == (limit > 0.5)
    if limit == 1:
        assert choice.lists(RANKS, COUNT, chunks) == ScheduleChoice(name).lists(RANKS, COUNT, chunks)


@pytest.mark.parametrize("name", IN_UNITS)
def test_a_unit_changes_lists_and_what_is_known_of_them(name):
    choice, chunks = ScheduleChoice(name, unit=8), chunks_of(name)
    assert choice.lists(RANKS, COUNT, chunks) != ScheduleChoice(name).lists(RANKS, COUNT, chunks)
    assert choice.period(RANKS) == 8
    assert choice.declared_in_flight(0, RANKS, COUNT, chunks) is None
    assert choice.steady_rounds is None


def test_knobs_that_a_schedule_does_not_look_at_change_no_list():
    choice = ScheduleChoice("1f1b", memory_limit=0.25, unit=2)
    assert choice.heeded == set()
    assert choice.given_knobs == {"memory_limit": 0.25, "unit": 2}
    assert choice.lists(RANKS, COUNT, 1) == ScheduleChoice("1f1b").lists(RANKS, COUNT, 1)
    assert choice.period(RANKS) == RANKS


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (ScheduleChoice("zero-bubble", 0.5), "zero-bubble (memory limit 0.5)"),
        (ScheduleChoice("zeropp", unit=16), "zeropp (unit 16)"),
        (ScheduleChoice("zeropp", 2.0, 3), "zeropp (memory limit 2, unit 3)"),
    ],
)
def test_it_is_said_in_words(choice, said):
    assert str(choice) == said


def test_a_unit_that_can_not_be_is_said_with_its_numbers():
    assert ScheduleChoice("interleaved-1f1b").fault(4, 6) == "micro-batches % 4 = 6 % 4 = 2 must be 0"
    assert ScheduleChoice("interleaved-1f1b", unit=6).fault(4, 6) is None
    assert "unit = 8 ≤ micro-batches = 6" in ScheduleChoice("interleaved-1f1b", unit=8).fault(4, 6)
