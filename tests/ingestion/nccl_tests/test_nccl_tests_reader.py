import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nccl_output import (
    TESTS,
    Run,
    nccl_json,
    proposed_json,
    rccl_csv,
    rccl_json,
    rccl_lines,
    text,
)

from meshwright.errors import InputError
from meshwright.ingestion.nccl_tests import reader
from meshwright.ingestion.nccl_tests.reader import parse_nccl_tests, read_nccl_tests
from meshwright.ingestion.nccl_tests.table import TableOverrides, collective_name, sweep_length

SAMPLES = Path(__file__).parent / "samples"
ONE_MORE = "60.00  17.48  30.58  0  59.1  61.2  61.0  1.3  2026-01-01 10:00:00"
SWEEP = {2**power: 2e-5 + 2**power / 2.5e11 for power in range(10, 31, 2)}


def rules(found):
    return "\n".join(f"{problem.field}: {problem.rule}" for problem in found.problems)


def test_one_and_two_nodes_in_one_file_with_the_prefix_of_srun():
    found = read_nccl_tests(SAMPLES / "h100_one_and_two_nodes.txt")
    one = [record for record in found.records if record.ranks == 8]
    two = [record for record in found.records if record.ranks == 16]
    assert (len(one), len(two), found.problems) == (12, 22, ())
    assert {(r.collective, r.nodes, r.processes, r.wrong) for r in one} == {("all-reduce", 1, 1, 0)}
    assert {(r.collective, r.nodes, r.processes, r.wrong) for r in two} == {("all-reduce", 2, 16, None)}
    last = max(two, key=lambda r: (r.bytes, r.in_place))
    assert (last.bytes, last.seconds, last.in_place) == (8589934592, pytest.approx(0.103538), True)
    assert (last.algbw_bytes_per_s, last.busbw_bytes_per_s) == (
        pytest.approx(82.96e9),
        pytest.approx(155.56e9),
    )
    assert last.device == "NVIDIA H100 80GB HBM3"


def test_a_table_without_a_name_and_with_two_tags_before_every_line():
    found = read_nccl_tests(SAMPLES / "h200_two_nodes_tagged.txt")
    assert {(r.collective, r.ranks, r.nodes, r.processes) for r in found.records} == {
        ("all-gather", 16, 2, 16)
    }
    assert (len(found.records), found.problems) == (48, ())


def test_two_tests_of_rccl_with_sizes_that_round_to_nothing():
    found = read_nccl_tests(SAMPLES / "mi355x_two_tests.txt")
    counts = {name: sum(r.collective == name for r in found.records) for name in ("all-reduce", "all-to-all")}
    assert counts == {"all-reduce": 58, "all-to-all": 42}
    assert {r.wrong for r in found.records if r.collective == "all-to-all" and r.in_place} == {None}
    assert found.problems == ()


def test_records_of_rccl_in_lines():
    found = read_nccl_tests(SAMPLES / "rccl_2024.json")
    assert [(r.ranks, r.bytes, r.in_place) for r in found.records[:2]] == [(4, 1024, False), (4, 1024, True)]
    assert found.records[0].seconds == pytest.approx(19.184150000000002e-6)


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("form", [text, nccl_json, rccl_json, rccl_lines, rccl_csv, proposed_json])
def test_all_forms_say_the_same(name, form):
    run = Run(name, SWEEP, ranks=16, nodes=2, one_process=False)
    found = parse_nccl_tests(form(run), TableOverrides(ranks=16))
    assert found.problems == ()
    assert {(r.collective, r.ranks) for r in found.records} == {(name, 16)}
    assert len(found.records) == 2 * len(SWEEP)
    for record in found.records:
        assert record.seconds == pytest.approx(SWEEP[record.bytes], rel=2e-3)
        assert record.algbw_bytes_per_s == pytest.approx(
            record.bytes / SWEEP[record.bytes], rel=1e-2, abs=6e6
        )
        assert record.wrong == (None if record.in_place and name in ("all-to-all", "send-receive") else 0)


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("ranks", [4, 8, 16, 64])
def test_figures_tell_the_collective_where_the_text_does_not(name, ranks):
    found = parse_nccl_tests(text(Run(name, SWEEP, ranks=ranks), named=False))
    assert {r.collective for r in found.records} == {name}


@pytest.mark.parametrize("name", ["all-reduce", "all-gather", "reduce-scatter", "all-to-all"])
def test_figures_tell_the_number_of_ranks_where_none_are_listed(name):
    run = Run(name, SWEEP, ranks=16)
    found = parse_nccl_tests(text(run, listed=False))
    assert {(r.ranks, r.nodes, r.processes) for r in found.records} == {(16, None, None)}
    assert {r.nodes for r in parse_nccl_tests(text(run, listed=False), TableOverrides(nodes=2)).records} == {
        2
    }


def test_a_command_line_names_the_table_that_follows_it():
    unproved = Run("all-to-all", SWEEP, wrong="N/A")
    with pytest.raises(InputError, match="which collective"):
        parse_nccl_tests(text(unproved, named=False))  # all-gather looks the same
    shell = "$ mpirun -np 8 ./build/alltoall_perf -b 8 -e 1G\n"
    assert {r.collective for r in parse_nccl_tests(shell + text(unproved, named=False)).records} == {
        "all-to-all"
    }
    known = TableOverrides(collective="all-gather")
    assert {r.collective for r in parse_nccl_tests(text(unproved, named=False), known).records} == {
        "all-gather"
    }


def test_figures_are_believed_before_names():
    wrong_name = text(Run("reduce-scatter", SWEEP)).replace("reduce_scatter", "all_reduce")
    found = parse_nccl_tests(wrong_name)
    assert {r.collective for r in found.records} == {"reduce-scatter"}
    assert "said to be all-reduce" in rules(found)
    listed_too_few = text(Run("all-reduce", SWEEP, ranks=16)).replace("#  Rank 15", "#  device")
    found = parse_nccl_tests(listed_too_few)
    assert {(r.ranks, r.nodes) for r in found.records} == {(16, None)}
    assert "lists 15 ranks" in rules(found)


def test_a_name_is_believed_where_only_checks_and_reductions_look_different():
    proved = text(Run("all-to-all", SWEEP)).replace("N/A", "  0").replace("none", " sum")
    assert {r.collective for r in parse_nccl_tests(proved).records} == {"all-to-all"}


def test_a_collective_that_is_none_is_refused():
    with pytest.raises(InputError, match="all-reduce"):
        parse_nccl_tests(text(Run("all-reduce", SWEEP)), TableOverrides(collective="allreduce"))


@pytest.mark.parametrize("beginning", ["{task}: ", "[1,{task}]<stdout>:", "[{task}] ", "pod-{task} | "])
def test_output_of_tasks_is_kept_apart_and_put_together(beginning):
    runs = [Run("all-gather", SWEEP), Run("all-reduce", {size: 2 * time for size, time in SWEEP.items()})]
    tasks = [
        [beginning.format(task=task) + line for line in text(run).splitlines()]
        for task, run in enumerate(runs)
    ]
    order = random.Random(7)
    mixed = []
    while any(tasks):
        mixed.append(order.choice([task for task in tasks if task]).pop(0))
    found = parse_nccl_tests("\n".join(mixed))
    assert found.problems == ()
    assert set(found.records) == {r for run in runs for r in parse_nccl_tests(text(run)).records}


def test_time_stamps_before_lines_do_not_separate_them():
    lines = text(Run("all-reduce", SWEEP)).splitlines()
    stamped = (f"2026-03-01T10:{n // 60:02d}:{n % 60:02d}.123456Z {line}" for n, line in enumerate(lines))
    assert parse_nccl_tests("\n".join(stamped)) == parse_nccl_tests("\n".join(lines))


def test_rows_that_other_output_interrupts():
    lines = []
    for line in text(Run("all-reduce", SWEEP)).splitlines():
        head, sign, figures = line.partition("   -1  ")
        if sign:
            lines += [
                head + sign,
                "host:497888:497888 [0] NCCL INFO 32768 Bytes -> Algo 0 proto 0 time 30.599",
                figures,
            ]
        else:
            lines.append(line)
    found = parse_nccl_tests("\n".join(lines))
    assert found.records == parse_nccl_tests(text(Run("all-reduce", SWEEP))).records


def test_tags_in_the_middle_of_rows():
    """As in NVIDIA/nccl issue 1453: mpirun tags every piece that a process writes."""
    pieces = [
        (
            "  524288   131072  float  sum  -1\n",
            "     366.5    1.43    2.74      0",
            "     340.8    1.54    2.95      0",
        ),
        (
            " 1048576   262144  float  sum  -1",
            "    1626.5    0.64    1.24      0",
            "    2302.3    0.46    0.87      0",
        ),
        (
            "33554432  8388608  float  sum  -1",
            "    2180.1   15.39   29.50      0",
            "    2285.2   14.68   28.14      0",
        ),
    ]
    rows = "[0] # Collective test starting: all_reduce_perf\n"
    rows += "".join("[0]" + "[0]".join(row) + "\n" for row in pieces)
    found = parse_nccl_tests(rows, TableOverrides(ranks=24))
    times = [round(r.seconds * 1e6, 1) for r in found.records]
    assert times == [366.5, 340.8, 1626.5, 2302.3, 2180.1, 2285.2]


def test_tables_of_old_releases():
    """From NVIDIA/nccl issue 644 (no reduction, no root) and a gist of 2019 (largest error in place of #wrong)."""
    gathered = """\
#                                             out-of-place                       in-place
#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576         32768     float    162.1    6.47    5.66  0e+00    162.0    6.47    5.66  0e+00
   134217728       4194304     float    16059    8.36    7.31  0e+00    16111    8.33    7.29  0e+00
"""
    found = parse_nccl_tests(gathered)
    assert {(r.collective, r.ranks, r.wrong) for r in found.records} == {("all-gather", 8, 0)}
    reduced = """\
# nThread 1 nGpus 1 minBytes 65536 maxBytes 134217728 step: 2048(factor) warmup iters: 5 iters: 100 validation: 1
#   Rank  0 Pid   7846 on ip-172-31-0-112 device  0 [0x00] Tesla V100-SXM2-32GB
#   Rank  1 Pid   7998 on ip-172-31-13-129 device  0 [0x00] Tesla V100-SXM2-32GB
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
       65536         16384   float     sum    201.1    0.33    0.33  5e-07    201.6    0.33    0.33  5e-07
   134217728      33554432   float     sum    21410    6.27    6.27  2e-07    21407    6.27    6.27  2e-07
"""
    found = parse_nccl_tests(reduced)
    assert {(r.collective, r.ranks, r.nodes, r.wrong) for r in found.records} == {("all-reduce", 2, 2, 0)}
    assert found.problems == ()


def test_statistics_of_iterations_and_stamps_after_the_figures():
    place = "time  algbw  busbw  #wrong  i_min  i_max  i_p99  i_cv%"
    wide = f"""\
# Collective test starting: all_reduce_perf
#  size  count  type  redop  root  {place}  {place}  timestamp
  1048576  262144  float  sum  -1  50.00  20.97  36.70  0  49.1  51.2  51.0  1.2 {ONE_MORE}
"""
    found = parse_nccl_tests(wide)
    assert [(r.ranks, r.in_place, round(r.seconds * 1e6)) for r in found.records] == [
        (8, False, 50),
        (8, True, 60),
    ]


def test_a_table_of_one_place():
    inside = """\
# Collective test starting: all_reduce_perf
#                                                  in-place
#  size  count  type  redop  root  time  algbw  busbw  #wrong
  1048576  262144  float  sum  -1  50.00  20.97  36.70  0
"""
    assert [r.in_place for r in parse_nccl_tests(inside).records] == [True]


def test_what_is_wrong_is_named():
    run = Run("all-reduce", SWEEP)
    assert "has 8 of 11 sizes and no end" in rules(parse_nccl_tests(cut(text(run, end=False), 3)))
    gap = parse_nccl_tests(cut(text(run), 3, until=4))
    assert "has 8 of 11 sizes and an end" in rules(gap)
    found = parse_nccl_tests(text(replace(run, wrong="12")))
    assert rules(found).count("12 elements of a message") == 2 * len(SWEEP)
    assert {r.wrong for r in found.records} == {12}
    failed = text(run).replace("values : 0 OK", "values : 7 FAILED")
    assert "7 values were out of bounds" in rules(parse_nccl_tests(failed))


def cut(output, count, until=0):
    """Without ``count`` lines, before the last ``until``."""
    lines = output.splitlines()
    keep = len(lines) - until
    return "\n".join(lines[: keep - count] + lines[keep:])


def test_figures_that_contradict_each_other_are_left_out():
    rows = (
        text(Run("all-reduce", SWEEP))
        + "  536870912 134217728 float sum -1  4.97 107.99 188.98 0  4.95 108.42 189.7 0\n"
    )
    found = parse_nccl_tests(rows)
    assert len(found.records) == 2 * len(SWEEP)
    assert "536870912 bytes in 4.97 µs" in rules(found)


def test_tests_without_mpi_are_not_taken_for_one():
    lines = text(Run("all-gather", SWEEP)).splitlines()
    with pytest.raises(InputError, match="without MPI"):
        parse_nccl_tests("\n".join([line for line in lines for _ in range(2 if "Rank" in line else 1)]))


def test_processor_time_is_not_a_measurement():
    with pytest.raises(InputError, match="processor time"):
        parse_nccl_tests(text(Run("all-reduce", SWEEP)).replace("   time ", " cputime "))


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("all_reduce_perf", "all-reduce"),
        ("/usr/local/bin/all_gather_perf_mpi", "all-gather"),
        ("build\\reduce_scatter_perf.exe", "reduce-scatter"),
        ("AlltoAll", "all-to-all"),
        ("SendRecv", "send-receive"),
        ("ib_write_bw", ""),
    ],
)
def test_names_of_tests(test, name):
    assert collective_name(test) == name


def test_lengths_of_sweeps():
    assert sweep_length(8, 8 * 2**30, 2, is_factor=True) == 31
    assert sweep_length(2**20, 10 * 2**20, 2**20, is_factor=False) == 10
    assert sweep_length(0, 8, 2, is_factor=True) is None
    assert sweep_length(8, 64, 1, is_factor=True) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "nothing",
        "{",
        "[]",
        '{"results": []}',
        '{"results": 5, "config": [], "args": {}}',
        '[{"busBw": 1}]',
        '[{"busBw": 1, "size": "x"}',
        '[{"busBw":' + "[" * 100_000,
        '{"identifier": "nccl-tests structured output", "benchmark": [5]}',
        "collective,size,busbw\n1,2\n",
        "collective,size,busbw\n" + '"' + "x" * 200_000,
        "#\0\x01\xff" * 1000,
        "1 2 float " * 100_000,
        "9" * 100_000,
        "\n".join(f"task-{n} 8 2 float sum -1 1 1 1 0 1 1 1 0" for n in range(5000)),
    ],
)
def test_what_is_no_measurement_is_refused(content):
    with pytest.raises(InputError) as error:
        parse_nccl_tests(content)
    assert error.value.problems


def test_files_that_are_none_are_refused(tmp_path, monkeypatch):
    for path in (tmp_path, tmp_path / "absent", "bad\0name"):
        with pytest.raises(InputError):
            read_nccl_tests(path)
    monkeypatch.setattr(reader, "MAX_BYTES", 100)
    with pytest.raises(InputError, match="too large"):
        read_nccl_tests(SAMPLES / "mi355x_two_tests.txt")


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_damaged_output_is_read_or_refused(data):
    form = data.draw(st.sampled_from([text, nccl_json, rccl_json, rccl_csv, proposed_json]))
    output = list(form(Run("all-gather", SWEEP)))
    for _ in range(data.draw(st.integers(1, 20))):
        place = data.draw(st.integers(0, len(output) - 1))
        output[place] = data.draw(
            st.sampled_from([*'0123456789-.eE{}[]",: \n#N', "", "999999999999999999", "1e400"])
        )
    try:
        found = parse_nccl_tests("".join(output))
    except InputError:
        return
    assert all(record.seconds > 0 and record.bytes > 0 and record.ranks > 0 for record in found.records)
