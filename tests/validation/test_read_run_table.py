"""Reading tables of runs: spellings, defaults, and what is refused and how."""

import pytest
from example_run_tables import GOOD, read, row, run_of, write

from meshwright.errors import InputError
from meshwright.validation.read_run_table import COLUMNS, Run, Skipped, read_runs


def test_a_good_row_is_read(table):
    run = run_of(table)
    assert (run.run_id, run.source, run.outcome, run.step_time_s, run.memory_gib) == (
        "r",
        "s",
        "ok",
        1.5,
        20.0,
    )
    assert (run.given.device, run.given.devices, run.given.layers) == ("a100-sxm-80gb", 8, 8)
    assert (run.chosen.tp, run.chosen.pp, run.chosen.cp) == (2, 2, None)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_byte_order_mark_line_ends_and_unknown_columns_do_not_matter(table, mark, end):
    lines = [",".join([*GOOD, "mood"]), ",".join([*GOOD.values(), "good"]), ""]
    table.write_bytes((mark + end.join(lines) + end).encode())
    (run,) = read_runs(table)
    assert isinstance(run, Run)
    assert run.run_id == "r"


def test_equal_cells_are_equal_objects(table):
    first, second, third = read(table, row(), row(run_id="x", step_time_s=2), row(device="a100-sxm-80gb"))
    assert first.given is second.given is third.given
    assert first.chosen is second.chosen


@pytest.mark.parametrize(
    ("text", "name", "vocabulary"),
    [
        ("none", "1f1b", ""),
        ("ZB-1p", "zb-h1", ""),
        ("zb-2p (synchronous grad-norm all-reduce)", "zb-h2", ""),
        ("1f1b+vocab-2", "1f1b", "vocab-2"),
        ("v-half+interlaced", "v-half", "interlaced"),
        ("interleaved-1f1b", "interleaved-1f1b", ""),
    ],
)
def test_spellings_of_schedules(table, text, name, vocabulary):
    schedule = run_of(table, schedule=text).chosen.schedule
    assert (schedule.name, schedule.vocabulary) == (name, vocabulary)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("selective", "selective"),
        ("core_attn", ("core_attn",)),
        ("mla_up_proj, moe_act", ("mla_up_proj", "moe_act")),
        ("layernorm moe_act;mlp", ("layernorm", "moe_act", "mlp")),
        ("", None),
    ],
)
def test_spellings_of_recomputation(table, text, expected):
    assert run_of(table, recompute=text).chosen.recompute == expected


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("layers", "many"),
        ("layers", "-3"),
        ("layers", "0"),
        ("layers", "2.5"),
        ("layers", "1e300"),
        ("layers", "9" * 5000),
        ("hidden", "1_024"),
        ("tp", "nan"),
        ("tp", "inf"),
        ("seq_len", ""),
        ("device", ""),
        ("device", "abacus"),
        ("devices", "10000001"),
        ("sequence_parallel", "perhaps"),
        ("outcome", "crashed"),
        ("step_time_s", "0"),
        ("step_time_s", "fast"),
        ("peak_memory_gib", "-1"),
        ("node_nic_gbit_per_s", "0"),
    ],
)
def test_a_wrong_cell_skips_its_row_and_says_which(table, column, text):
    good, bad = read(table, row(), row(run_id="bad", **{column: text}))
    assert isinstance(good, Run)
    assert isinstance(bad, Skipped)
    assert (bad.run_id, bad.source) == ("bad", "s")
    assert column in bad.reason
    assert len(bad.reason) < 300


def test_everything_wrong_with_a_row_is_said(table):
    (bad,) = read(table, row(layers="x", tp="y", step_time_s="z"))
    assert all(name in bad.reason for name in ("layers", "tp", "step_time_s"))


def test_whole_numbers_of_spreadsheets_are_whole(table):
    assert run_of(table, layers="8.0", tp=" 2 ").given.layers == 8


def test_a_row_without_a_name_is_named_by_its_line(table):
    assert run_of(table, run_id="").run_id == "line 2"


def test_out_of_memory_has_no_measurement(table):
    run = run_of(table, outcome="oom")
    assert (run.outcome, run.step_time_s, run.memory_gib) == ("oom", None, None)


@pytest.mark.parametrize("missing", ["device", "seq_len"])
def test_a_missing_column_that_is_needed_skips_every_row(table, missing):
    write(table, [row(), row()], [name for name in COLUMNS if name != missing])
    first, second = read_runs(table)
    assert first.reason == second.reason == f"{missing}: not given"


def test_short_long_and_broken_lines_are_skipped_and_the_rest_is_read(table):
    lines = [",".join(GOOD), "a,b", ",".join([*GOOD.values(), "x"]), "", ",".join(GOOD.values())]
    lines.insert(2, "big," + "x" * 200_000)
    table.write_text("\n".join(lines), encoding="utf-8")
    *bad, good = read_runs(table)
    assert [type(item) for item in bad] == [Skipped] * 3
    assert "2 cells" in bad[0].reason
    assert "limit" in bad[1].reason
    assert isinstance(good, Run)


def test_half_a_file_loses_only_its_last_line(table):
    write(table, [row(), row()])
    table.write_bytes(table.read_bytes()[:-20])
    first, second = read_runs(table)
    assert isinstance(first, Run)
    assert isinstance(second, Skipped)


def test_bytes_that_are_not_utf_8_are_read_around(table):
    write(table, [row(source="caf")])
    table.write_bytes(table.read_bytes().replace(b"caf", b"caf\xe9"))
    (run,) = read_runs(table)
    assert isinstance(run, Run)
    assert run.source.startswith("caf")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"  \n\n",
        b"\x00\x01\x02",
        "run_id,device\nä,b".encode("utf-16"),
        b"\x89PNG\r\n",
        b"just words",
        b'{"device": 1}',
        b"run_id;device;devices;seq_len",
        b"tp,pp,step_time_s\n1,2,3",
        b"device,device,devices\n",
        b"x" * 300_000,
    ],
)
def test_what_is_no_table_of_runs_is_refused(table, content):
    table.write_bytes(content)
    with pytest.raises(InputError) as caught:
        list(read_runs(table))
    assert all(problem.suggestion for problem in caught.value.problems)


@pytest.mark.parametrize("name", ["absent.csv", ".", "\0", "x" * 5000])
def test_what_can_not_be_opened_is_refused(tmp_path, name):
    with pytest.raises(InputError):
        list(read_runs(f"{tmp_path}/{name}"))


def test_a_table_without_rows_has_none(table):
    assert read(table) == []


def test_a_device_of_one_s_own_is_known_where_it_is_named(table):
    write(table, [row(device="Some-CPU"), row(device="H100"), row(device="some-cpus")])
    theirs, ours = list(read_runs(table)), list(read_runs(table, ["some-cpu"]))
    assert [type(item) for item in theirs] == [Skipped, Run, Skipped]
    assert [type(item) for item in ours] == [Run, Run, Skipped]
    assert [item.given.device for item in ours[:2]] == ["some-cpu", "h100-sxm-80gb"]
