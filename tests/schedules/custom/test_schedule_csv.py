"""Lists as CSV: round trips, torch's form, hostile texts."""

import csv
import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.schedules.action import KINDS, SCOPE, Action, parse_actions
from meshwright.schedules.custom.csv_file import MAX_BYTES, MOST, format_csv, lists_from_csv, read_lists
from meshwright.schedules.generators import SCHEDULES

number = st.integers(0, 10**9 - 1)


@st.composite
def actions(draw):
    kind = draw(st.sampled_from(KINDS))
    stage = None if SCOPE[kind] == "rank" else draw(number)
    return Action(kind, stage, draw(number) if SCOPE[kind] == "pass" else None)


any_lists = st.lists(st.lists(actions(), max_size=9), min_size=1, max_size=6).filter(lambda lists: lists[-1])


def refused(text):
    with pytest.raises(InputError) as error:
        lists_from_csv(text, "lists.csv")
    assert all(problem.rule and problem.suggestion for problem in error.value.problems)
    return error.value.problems


@given(any_lists)
def test_csv_round_trip(lists):
    assert lists_from_csv(format_csv(lists)) == lists


@given(any_lists, st.sampled_from(("\n", "\r\n")), st.booleans())
def test_what_a_spreadsheet_makes_of_it_is_the_same(lists, end, quoted):
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator=end, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL)
    width = max(map(len, lists))
    writer.writerows([*map(str, row), *[""] * (width - len(row))] for row in lists)
    assert lists_from_csv(stream.getvalue()) == lists


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_goes_through_a_file(name, tmp_path):
    kind = SCHEDULES[name]
    lists = kind.lists(4, 8, kind.fixed_chunks or (2 if kind.chunked else 1))
    path = tmp_path / "lists.csv"
    path.write_text("\ufeff" + format_csv(lists), encoding="utf-8")
    assert read_lists(path) == lists


def test_the_form_is_that_of_torch():
    """Slots in which a rank idles are empty cells, pairs that overlap stand in brackets (torch 2.13)."""
    text = "0F0,0F1,,,0I0,0W0,\r\n,1F0,(1F1;1B0)OVERLAP_F_B,1B1\r\n"
    assert lists_from_csv(text) == [parse_actions("0F0 0F1 0I0 0W0"), parse_actions("1F0 1F1 1B0 1B1")]
    assert format_csv([parse_actions("2F0 3I1"), parse_actions("3W1")]) == "2F0,3I1\n3W1\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULES)
def test_torch_reads_what_we_write_and_we_read_what_torch_writes(name):
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    kind = SCHEDULES[name]
    lists = kind.lists(4, 8, kind.fixed_chunks or (2 if kind.chunked else 1))
    rows = [
        [schedules._Action.from_str(cell) for cell in row]
        for row in csv.reader(io.StringIO(format_csv(lists)))
    ]
    for theirs, ours in zip(rows, lists, strict=True):
        assert [(a.stage_index, a.computation_type.value, a.microbatch_index) for a in theirs] == [
            (a.stage, a.kind, a.micro_batch) for a in ours
        ]
    stream = io.StringIO()
    csv.writer(stream).writerows([[*row, None] for row in rows])
    assert lists_from_csv(stream.getvalue()) == lists


def test_all_wrong_words_are_named_with_their_rank():
    problems = refused("0F0,0X0,0B0\n1F0,forward\n2F0,2B0")
    assert [(p.field, p.value) for p in problems] == [("lists.0", "0X0"), ("lists.1", "forward")]


def test_a_heading_is_no_list_and_ranks_without_a_row_are_kept():
    assert [p.value for p in refused("rank,actions\n0,0F0 0B0")] == ["rank", "actions", "0"]
    assert lists_from_csv("\n0F0 0B0\n\n1F0\n\n") == [[], parse_actions("0F0 0B0"), [], parse_actions("1F0")]


def test_of_very_many_wrong_words_the_first_are_named():
    problems = refused("x," * 100_000)
    assert len(problems) == MOST + 1
    assert "more than" in problems[-1].rule


@pytest.mark.parametrize("text", ["", "\n\n", " ", "\ufeff"])
def test_a_file_with_nothing_in_it_has_no_lists(text, tmp_path):
    path = tmp_path / "lists.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_lists(path)
    assert error.value.problems[0].field == "file"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (bytes(range(256)), "not UTF-8"),
        (b"0F0," * (MAX_BYTES // 4 + 1), "too large"),
        (b'"' + b"0F0 " * 50_000, "cannot be read as CSV"),
        (b"0F0\0,0B0", "not an action"),
        (b"\n" * (2**16 + 1) + b"0F0", "rows"),
        (b"9" * 5000 + b"F0", "not an action"),
    ],
)
def test_hostile_files_are_refused(content, words, tmp_path):
    path = tmp_path / "lists.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_lists(path)
    assert words in str(error.value)


def test_a_directory_is_no_file(tmp_path):
    with pytest.raises(InputError):
        read_lists(tmp_path)


@given(st.text(max_size=200))
@example(",")
def test_any_text_is_read_or_refused(text):
    try:
        lists = lists_from_csv(text)
    except InputError:
        return
    assert lists_from_csv(format_csv(lists)) == lists or not lists[-1]
