"""Lists that somebody wrote: those of the table are themselves, and every fault stands where it is in the file."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_orders import drawn_order

from meshwright.program.pipeline_messages.nccl_deadlock_check import check_messages
from meshwright.schedules.choice import ScheduleChoice, stage_chains, stage_placement
from meshwright.schedules.custom.csv_file import format_csv, lines_of_file
from meshwright.schedules.custom.custom_schedule import CustomSchedule
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.insert_messages import insert_messages
from meshwright.schedules.pipeline import looped_placement, v_placement

RANKS, COUNT = 4, 8


def written(*rows, file="mine.csv"):
    return CustomSchedule(tuple(",".join(row.split()) for row in rows), file)


def lines_of(lists):
    return tuple(format_csv(lists).splitlines())


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_lists_of_the_table_are_the_same_schedule_when_they_are_written(name):
    kind = SCHEDULES[name]
    chunks = kind.fixed_chunks or (2 if kind.chunked else 1)
    lists = kind.lists(RANKS, COUNT, chunks)
    choice = ScheduleChoice("mine.csv", written=CustomSchedule(lines_of(lists), "mine.csv"))
    mine = choice.kind
    assert choice.written.problems == []
    assert choice.lists(RANKS, COUNT, chunks) == lists
    assert mine.ways(RANKS, chunks) == kind.ways(RANKS, chunks)
    assert stage_placement(choice, RANKS, chunks) == kind.placement(RANKS, chunks)
    assert (mine.split, mine.fixed_chunks, mine.allows(chunks)) == (kind.split, chunks, True)
    assert not choice.usual
    assert (choice.fault(RANKS, COUNT), choice.period(RANKS)) == (None, COUNT)
    for size in ((RANKS, COUNT + 1), (RANKS + 1, COUNT)):
        assert "must be 4, 8" in choice.fault(*size)
    assert stage_placement(choice, RANKS + 1, chunks) == looped_placement(RANKS + 1, chunks)


@pytest.mark.parametrize(
    ("rows", "place", "value", "rule"),
    [
        (("0F0 0B0 x", "1F0 1B0"), "mine.csv, line 1", "x", "not an action"),
        (("0F0 0B0", "1F0 1Z0"), "mine.csv, line 2", "1Z0", "not an action"),
        (("0F0 0B0", "1F0"), "mine.csv, line 2", "1B0", "is missing"),
        (("0F0 0B0 0B0", "1F0 1B0"), "mine.csv, line 1", "0B0", "is there 2 times"),
        (("0F0 0B0 0F1", "1F0 1B0 0B1 1F1 1B1"), "mine.csv, line 2", "0B1", "stage 0 lies on rank 0"),
        (("0F0 0B0", "1B0 1F0"), "mine.csv, line 2", "1B0", "which it needs"),
        (("0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"), "mine.csv", "0B0 1F1", "wait for each other"),
        (("0F0 0B0", "", "1F0 1B0"), "mine.csv, line 2", "", "nothing to do"),
        (("0F0 0F2 0B2 0B0",), "mine.csv", "micro-batch 2", "no pass has micro-batch 1"),
        (("0F0 STEP 0B0", "1F0 1B0"), "mine.csv, line 1", "STEP", "passes only"),
        (("0F0 0E0 0B0",), "mine.csv, line 1", "0E0", "share of the vocabulary, which is 1"),
        (("0F0 0B0", "1F0 2F0 2B0 1B0"), "mine.csv, line 1", 1, "equally many"),
        (("0F0 0F1 0I0 0W0 0B1", "1F0 1F1 1I0 1W0 1B1"), "mine.csv, line 2", "1B1", "others are split"),
        (("0F0 2F1 2B1 0B0", "1F0 3F1 1B0 3B1"), "mine.csv", [0, 1, 0, 1], "lie otherwise"),
        (("0F1 3F0 3B0 0B1", "2F0 1F1 1B1 2B0"), "mine.csv", [1, 1], "first half"),
    ],
)
def test_a_fault_is_named_with_its_line(rows, place, value, rule):
    wrong = written(*rows)
    found = [p for p in wrong.problems if (p.field, p.value) == (place, value) and rule in p.rule]
    assert found, wrong.problems
    assert all(problem.suggestion for problem in wrong.problems)
    assert wrong.kind is None
    assert (stage_chains(ScheduleChoice("mine.csv", written=wrong)), wrong.beyond(0.1)) == (1, [])


def test_all_faults_come_at_once_and_a_suggestion_counts_lines_too():
    problems = written("0F0 0B0 1F1", "1F0 1B0 1B1 0F1").problems
    assert len(problems) == 3
    assert "move 1F1 to line 2" in {problem.suggestion for problem in problems}
    inline = written("0F0 0B0 1F1", "1F0 1B0 1B1 0F1", file=None).problems
    assert "pipeline.schedule.lists.0" in {problem.field for problem in inline}
    assert "move 1F1 to list 1" in {problem.suggestion for problem in inline}


@pytest.mark.parametrize(("limit", "lines"), [(1.0, []), (0.75, ["mine.csv, line 1"]), (0.4, [1, 2, 3])])
def test_lists_are_held_against_a_limit_in_times_of_what_1f1b_holds(limit, lines):
    mine = CustomSchedule(lines_of(SCHEDULES["1f1b"].lists(RANKS, COUNT, 1)), "mine.csv")
    found = [problem.field for problem in mine.beyond(limit)]
    assert found == [f"mine.csv, line {line}" if isinstance(line, int) else line for line in lines]


def test_the_digest_is_that_of_the_file_as_it_is_written(tmp_path):
    path = tmp_path / "mine.csv"
    content = format_csv(SCHEDULES["zb-h1"].lists(RANKS, COUNT, 1)).encode()
    path.write_bytes(content)
    mine = CustomSchedule(lines_of_file(path), str(path))
    assert (mine.sha256, mine.name) == (sha256(content).hexdigest(), "mine.csv")
    path.write_bytes(b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n") + b"\r\n\r\n")
    assert lines_of_file(path) == mine.lines
    assert CustomSchedule(mine.lines).name == f"lists {mine.sha256[:8]}"


@given(
    st.integers(1, 3), st.integers(1, 2), st.integers(1, 4), st.booleans(), st.booleans(), st.integers(0, 99)
)
def test_any_order_that_can_run_is_legal_and_no_message_waits_in_vain(ranks, chunks, count, v, split, seed):
    placement = (v_placement if v else looped_placement)(ranks, chunks)
    lists = drawn_order(placement, count, split, seed)
    mine = CustomSchedule(lines_of(lists))
    assert mine.problems == []
    assert mine.kind.lists(ranks, count, chunks) == lists
    assert mine.kind.placement(ranks, chunks) == placement
    assert check_messages(insert_messages(lists, placement), placement) == []
