"""Schedules of a CSV file: the same figures as by name, every fault named, messages included."""

import pytest
from schedule_cases import SIZE, lists_file, schedule

from meshwright.errors import InfeasibleError, InputError
from meshwright.schedules.action import format_actions
from meshwright.schedules.custom.csv_file import format_csv
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.insert_messages import insert_messages


def refused(path, **options):
    with pytest.raises(InputError) as error:
        schedule(path, **options)
    assert all(problem.rule and problem.suggestion for problem in error.value.problems)
    return error.value.problems


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_file_has_the_figures_of_the_schedule_that_wrote_it(tmp_path, name):
    by_name = schedule(name, **SIZE, times="1,0.9,0.8,0.1")
    path = tmp_path / "lists.csv"
    path.write_text(by_name.csv(), encoding="utf-8")
    of_file = schedule(path, times="1,0.9,0.8,0.1")
    assert of_file.figures == by_name.figures
    assert of_file.timeline == by_name.timeline
    assert of_file.made.shape == by_name.made.shape


@pytest.mark.parametrize("name", [name for name, kind in SCHEDULES.items() if kind.chains == 1])
def test_a_file_may_have_the_messages_too(tmp_path, name):
    made = schedule(name, **SIZE).made
    path = tmp_path / "lists.csv"
    path.write_text(format_csv(insert_messages(made.lists, made.shape.placement)), encoding="utf-8")
    assert schedule(path).made.lists == made.lists


def test_the_ends_of_two_ways_exchange_nothing(tmp_path):
    """The last stage of one way and the first of the other lie on different ranks."""
    path = lists_file(tmp_path, "0F0 2F1 2B1 0B0", "1F0 3F1 1B0 3B1")
    assert schedule(path).figures.messages == (2, 2)


@pytest.mark.parametrize(
    ("rows", "value", "rule"),
    [
        (("0F0 0F1 0B0", "1F0 1B0 1F1 1B1"), "0B1", "is missing"),
        (("0F0 0F1 0B0 0B1 0B1", "1F0 1B0 1F1 1B1"), "0B1", "is there 2 times"),
        (("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"), "0B0 1F1", "wait for each other"),
        (("0F0 0STEP 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"), "0STEP", "neither number"),
        (("0F0 STEP 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"), "STEP", "no pass"),
    ],
)
def test_faults_of_passes_are_named(tmp_path, rows, value, rule):
    (problem,) = refused(lists_file(tmp_path, *rows))
    assert problem.value == value
    assert rule in problem.rule


GOOD = (
    "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
    "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1",
)


def test_messages_that_wait_for_each_other_are_a_deadlock(tmp_path):
    """Rank 0 wants the first gradient before it sends what rank 1 wants first; the passes alone would be legal."""
    late = "0F0 0SEND_F0 0F1 0RECV_B0 0SEND_F1 0B0 0RECV_B1 0B1"
    early = "1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1B1 1SEND_B1"
    assert schedule(lists_file(tmp_path, late, GOOD[1])).figures.makespan > 0
    (problem,) = refused(lists_file(tmp_path, late, early))
    assert problem.value == "0RECV_B0 1RECV_F1"
    assert "wait for each other's messages" in problem.rule
    passes = [" ".join(word for word in row.split() if "_" not in word) for row in (late, early)]
    assert schedule(lists_file(tmp_path, *passes)).figures.makespan > 0


@pytest.mark.parametrize(
    ("old", "new", "value", "rule"),
    [
        ("0SEND_F1 ", "", "0SEND_F1", "missing"),
        ("0SEND_F1", "0SEND_F1 0SEND_F1", "0SEND_F1", "nobody needs"),
        ("0F1 0SEND_F1", "0SEND_F1 0F1", "0SEND_F1", "stands at 2, and 0F1 at 3"),
        ("1RECV_F1 1F1", "1F1 1RECV_F1", "1RECV_F1", "stands at 5, and 1F1 at 4"),
        ("0RECV_B0 0B0", "0B0 0RECV_B0", "0RECV_B0", "stands at 5, and 0B0 at 4"),
        ("1RECV_F0", "1RECV_F0 1RECV_B0", "1RECV_B0", "nobody needs"),
    ],
)
def test_faults_of_messages_are_named(tmp_path, old, new, value, rule):
    assert schedule(lists_file(tmp_path, *GOOD)).made.shape.total == 2
    (problem,) = refused(lists_file(tmp_path, *(row.replace(old, new, 1) for row in GOOD)))
    assert problem.value == value
    assert rule in problem.rule


def test_numbers_beside_a_file_must_be_its_own(tmp_path):
    path = lists_file(tmp_path, "0F0 0B0", "1F0 1B0")
    assert schedule(path, stages=2, micro_batches=1, chunks=1).figures.makespan == 6
    problems = refused(path, stages=3, micro_batches=2, chunks=2, unit=4, times="x")
    assert {p.field for p in problems} == {"stages", "micro-batches", "chunks", "unit", "times"}


def test_a_limit_that_the_lists_break_is_an_answer(tmp_path):
    path = lists_file(tmp_path, "0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1")
    assert schedule(path, memory_limit=4).figures.peak_memory == (4, 2)
    with pytest.raises(InfeasibleError) as error:
        schedule(path, memory_limit=3)
    assert error.value.reasons == (
        "rank 0 holds 4 > 3, the limit, with 0F1 at 1; at most 4, 1 too much, with 0F1 at 1",
    )


def test_a_file_that_is_absent_or_no_text_is_refused(tmp_path):
    assert refused(tmp_path / "absent.csv")[0].field == "file"
    path = tmp_path / "lists.csv"
    path.write_bytes(bytes(range(256)))
    assert refused(path)[0].field == "file"


def test_the_text_of_a_list_is_one_cell_for_each_action(tmp_path):
    made = schedule("1f1b", **SIZE).made
    path = lists_file(tmp_path, *map(format_actions, made.lists))
    assert schedule(path).made.lists == made.lists
