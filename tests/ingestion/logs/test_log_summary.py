"""What counts of a log: warm-up, restarts, ranks, damage, and logs that are no log."""

import io
import random
import tracemalloc
from itertools import islice
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_samples import BANNER, NAMES, OUT_OF_MEMORY, SAMPLES, step, steps, summary_of, table, text_of

from meshwright.errors import InputError
from meshwright.ingestion.logs import iteration_series
from meshwright.ingestion.logs.iteration_series import IterationSeries
from meshwright.ingestion.logs.lines import LONGEST, log_lines, rank_mark
from meshwright.ingestion.logs.readers import READERS
from meshwright.ingestion.logs.summary import read_log, read_log_file


def _timing(text):
    return summary_of(text).timing


def test_the_first_three_steps_are_warm_up():
    timing = _timing(step(1, 90_000) + step(2, 1100) + step(3, 1100) + steps(4, 9, 1000))
    assert (timing.median_s, timing.steps, timing.warm_up) == (1.0, 6, 3)


def test_warm_up_lasts_until_a_step_is_near_the_median():
    slow = "".join(step(number, 5000 - 500 * number) for number in range(1, 7))
    timing = _timing(slow + steps(7, 30, 1000))
    assert (timing.median_s, timing.high_s, timing.steps) == (1.0, 1.0, 24)


def test_slow_steps_later_on_count():
    timing = _timing(steps(1, 10, 1000) + steps(11, 16, 3000) + steps(17, 23, 1000))
    assert timing.steps == 20
    assert timing.high_s == pytest.approx(3.0)


def test_a_log_of_warm_up_only_has_no_step_time():
    summary = summary_of(steps(1, 3))
    assert (summary.timing, summary.step_time_s) == (None, None)


def test_of_reports_over_an_interval_only_the_first_is_warm_up():
    text = step(100, 1800) + "".join(step(100 * number, 1000) for number in range(2, 8))
    assert (_timing(text).steps, _timing(text).warm_up) == (6, 1)


@pytest.mark.parametrize("between", ["", BANNER], ids=["no banner", "banner"])
def test_of_an_iteration_that_ran_again_the_later_run_counts(between):
    timing = _timing(steps(1, 50, 1000) + between + steps(41, 80, 1100))
    assert timing.steps == (40 - 3) + (40 - 3)
    assert timing.low_s == pytest.approx(1.0)
    assert timing.high_s == pytest.approx(1.1)
    assert summary_of(steps(1, 50) + between + steps(41, 80)).restarts == 1


def test_warm_up_is_dropped_after_every_restart():
    slow = steps(41, 43, 50_000)
    assert _timing(steps(1, 50) + slow + steps(44, 90)).high_s == pytest.approx(1.0)


def test_times_without_an_iteration_count_one_after_the_other_and_warm_up_again():
    times = "".join(
        f"Step Time : {seconds}s GPU utilization: 9.0MODEL_TFLOP/s/GPU\n" for seconds in (90, 9, 2, 2, 2)
    )
    summary = summary_of(times + "Starting training loop at iteration 40\n" + times)
    assert (summary.reader, summary.timing.steps, summary.timing.warm_up) == ("megatron-bridge", 4, 6)
    assert summary.timing.high_s == 2.0


def test_a_run_that_is_resumed_behind_the_last_step_is_one_run():
    timing = _timing(steps(1, 50) + BANNER + steps(51, 100))
    assert timing.steps == 47 + 47


def test_of_several_runs_in_a_file_the_last_counts():
    first, second = table(tensor_model_parallel_size=8), table(tensor_model_parallel_size=4)
    memory = "[Rank 0] (after 2 iterations) memory (MB) | max allocated: {}.0 | reserved: 2.0\n"
    text = (
        first + memory.format(4096) + steps(1, 90, 1000) + second + steps(1, 20, 2000) + memory.format(1024)
    )
    summary = summary_of(text)
    assert (summary.timing.median_s, summary.timing.steps, summary.other_runs) == (2.0, 17, 1)
    assert summary.cells["tp"].value == "4"
    assert summary.peaks_gib == {"max allocated": 1.0}


def test_a_last_run_that_made_no_step_does_not_count():
    first, second = table(tensor_model_parallel_size=8), table(tensor_model_parallel_size=4)
    summary = summary_of(first + steps(1, 20) + second)
    assert (summary.cells["tp"].value, summary.timing.steps, summary.other_runs) == ("8", 17, 0)


def test_a_restart_may_repeat_only_a_part_of_the_settings():
    text = (
        table(tensor_model_parallel_size=8, num_layers=4) + steps(1, 9) + table(num_layers=4) + steps(7, 20)
    )
    assert {"tp", "layers"} <= set(summary_of(text).cells)


def test_a_growing_batch_counts_at_its_last_size():
    summary = summary_of(
        table(global_batch_size=64) + steps(1, 30, 500, batch=32) + steps(31, 60, 1000, batch=64)
    )
    assert (summary.timing.median_s, summary.cells["global_batch"].value) == (1.0, "64")
    assert summary.timing.steps == 27


def test_memory_that_ran_out_is_the_outcome():
    summary = read_log_file(SAMPLES / "out-of-memory.log")
    assert (summary.out_of_memory, summary.timing, summary.reader) == (True, None, "megatron")
    assert summary.cells["tp"].value == "4"


def test_memory_that_ran_out_before_a_restart_that_went_on_is_no_outcome():
    assert not summary_of(OUT_OF_MEMORY + BANNER + steps(1, 9)).out_of_memory
    assert not summary_of(steps(1, 20) + OUT_OF_MEMORY + steps(11, 30)).out_of_memory


def test_steps_that_a_buffer_let_go_after_the_message_do_not_undo_it():
    assert summary_of(BANNER + OUT_OF_MEMORY + steps(1, 9)).out_of_memory
    assert summary_of(steps(1, 9) + OUT_OF_MEMORY).out_of_memory
    assert summary_of(steps(1, 9) + BANNER + OUT_OF_MEMORY).out_of_memory


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 39.59 GiB total capacity)",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.",
        "torch.AcceleratorError: CUDA error: out of memory",
        "OutOfMemoryErrorOutOfMemoryError: : CUDA out of memory. Tried to allocate 2.11 GiB (GPU 6;",
    ],
)
def test_messages_of_older_releases_and_of_other_devices_are_known(message):
    assert summary_of(message).out_of_memory


def test_talk_of_memory_is_no_outcome():
    talk = "If reserved memory is >> allocated, set max_split_size_mb to avoid being out of memory\n"
    assert not summary_of(talk + steps(1, 9)).out_of_memory


MARKS = {
    "torchrun": "[rank{}]:",
    "torchrun by default": "[default{}]:",
    "srun": "{}: ",
    "Open MPI": "[1,{}]<stdout>:",
    "pdsh": "gpu-q-{}: ",
    "nemo-run": "in_fp8_mx/{} ",
    "a container": "2026-05-05T18:39:40.7881622Z [rank{}]:",
}


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)
def test_marks_of_ranks_are_seen(mark):
    assert {rank_mark(step(1, mark=mark.format(rank))) for rank in (0, 31)} != {None}
    assert len({rank_mark(step(1, mark=mark.format(rank))) for rank in (0, 3, 31)}) == 3


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)
def test_settings_behind_marks_of_ranks_are_read(mark):
    lines = table(tensor_model_parallel_size=8).splitlines(keepends=True)
    assert summary_of("".join(mark.format(0) + line for line in lines) + step(1)).cells["tp"].value == "8"


def _of_rank(rank, count, start=1):
    """Rank 2 takes 100 ms more than the others, which take longer by the iteration."""
    return [
        step(number, 1000 + number + 100 * (rank == 2), mark=f"[rank{rank}]:")
        for number in range(start, start + count)
    ]


def _mixed(streams, seed):
    """Lines of several streams, each in its order, in any order of the streams."""
    choose, streams = random.Random(seed), [list(stream) for stream in streams]
    while any(streams):
        yield choose.choice([stream for stream in streams if stream]).pop(0)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_ranks_in_any_order_count_once_with_the_slowest(seed):
    alone = read_log(_of_rank(2, 30)).timing
    together = read_log(_mixed([_of_rank(rank, 30) for rank in range(4)], seed))
    assert (together.timing, together.restarts) == (alone, 0)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_ranks_in_any_order_restart_together(seed):
    before = _mixed([_of_rank(rank, 30) for rank in range(4)], seed)
    after = _mixed([_of_rank(rank, 30, start=21) for rank in range(4)], seed + 1)
    summary = read_log([*before, BANNER, *after])
    assert (summary.restarts, summary.timing) == (
        1,
        read_log([*_of_rank(2, 30), BANNER, *_of_rank(2, 30, 21)]).timing,
    )


def test_ranks_without_marks_that_keep_step_count_once_with_the_slowest():
    lines = []
    for number in range(1, 31):
        mine = [step(number, 1000 + 10 * rank) for rank in range(4)]
        late = [lines.pop()] if lines else []
        lines += [mine.pop(), *late, *mine]
    summary = read_log(lines)
    assert (summary.timing.median_s, summary.timing.steps, summary.restarts) == (pytest.approx(1.03), 27, 0)


def test_a_line_that_is_printed_twice_counts_once():
    assert _timing("".join(2 * line for line in steps(1, 20).splitlines(keepends=True))).steps == 17
    marked = steps(1, 20, mark="[default7]:").splitlines(keepends=True)
    assert _timing("".join(2 * line for line in marked)).steps == 17


def test_colours_change_nothing():
    name = "torchtitan-0.2.2.log"
    assert "\x1b[" in text_of(name)
    coloured = (
        steps(1, 9).replace("iteration", "\x1b[1;31miteration\x1b[0m").replace("(ms): ", "(ms): \x1b[32m")
    )
    assert _timing(coloured) == _timing(steps(1, 9))


def test_carriage_returns_end_lines():
    assert "\r" in text_of("nemo-1.log")
    assert _timing(steps(1, 9).replace("\n", "\r\n")) == _timing(steps(1, 9))


@given(st.sampled_from(NAMES), st.floats(0, 1))
@settings(max_examples=80, deadline=None)
def test_a_prefix_has_the_steps_of_its_complete_lines(name, share):
    text = text_of(name)
    prefix = text[: round(share * len(text))]
    complete = prefix[: max(prefix.rfind("\n"), prefix.rfind("\r")) + 1]
    assert _result(prefix) == _result(complete)


def _result(text):
    """Timing and settings; None where there is none (a message that memory ran out needs no end)."""
    try:
        summary = read_log([text])
    except InputError:
        return None, None
    return (None, None) if summary.out_of_memory else (summary.timing, summary.step_time_s)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [""],
        ["\n"] * 5,
        ["no step here\n"],
        [bytes(range(256)).decode("latin-1") * 40 + "\n"],
        ["\x1b" * 9999],
    ],
    ids=["nothing", "empty", "line ends", "words", "bytes", "escapes"],
)
def test_what_is_no_log_says_what_was_looked_for(lines):
    with pytest.raises(InputError) as error:
        read_log(lines)
    (problem,) = error.value.problems
    assert all(
        name in problem.suggestion and reader.looked_for in problem.suggestion
        for name, reader in READERS.items()
    )


def test_binary_garbage_around_steps_changes_nothing(tmp_path):
    garbage = random.Random(5).randbytes(20_000)
    file = tmp_path / "log"
    file.write_bytes(garbage + b"\n" + steps(1, 9).encode() + garbage)
    assert read_log_file(file).timing == _timing(steps(1, 9))


@pytest.mark.parametrize("path", ["nowhere.log", ".", "a\0b"])
def test_what_cannot_be_opened_is_an_input_error(path):
    with pytest.raises(InputError):
        read_log_file(path)


def test_over_long_lines_are_cut_and_the_next_is_read():
    file = io.BytesIO(b"x" * (3 * LONGEST) + b"\n" + steps(1, 9).encode())
    first, second, *_ = log_lines(file)
    assert (len(first), second) == (LONGEST + 1, step(1))
    assert read_log(["x" * (3 * LONGEST) + "\n", *steps(1, 9).splitlines(keepends=True)]).timing.steps == 6


def test_lines_that_no_reader_knows_are_counted():
    summary = summary_of("hello\n" + steps(1, 5) + "world\n")
    assert (summary.lines, summary.unread_lines) == (7, 2)


class _Endless:
    """A log of 100 MB that nobody holds: lines of 2 kB on demand."""

    def __init__(self, lines):
        self.lines = (self._line(number) for number in range(1, lines + 1))

    @staticmethod
    def _line(number):
        words = "INFO:megatron.core.datasets.gpt_dataset:> total number of samples: 4899690 " * 27
        return step(number // 10, 1000 + number % 7) if number % 10 == 0 else f"{words}{number}\n"

    def read(self, size):
        return "".join(islice(self.lines, size // 2000)).encode()


@pytest.mark.slow
def test_a_long_log_is_read_in_bounded_memory():
    count = 50_000
    tracemalloc.start()
    summary = read_log(log_lines(_Endless(count)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (summary.lines, summary.timing.steps) == (count, count // 10 - 3)
    assert peak < 12 * 2**20


def test_more_steps_than_are_held_are_thinned_out_evenly(monkeypatch):
    most = 2**16
    monkeypatch.setattr(iteration_series, "MOST", most)
    series = IterationSeries()
    for number in range(3 * most // 2):
        series.add(number, 1.0 + 0.1 * number / most, None)
    assert most // 2 < len(series.paces) <= most
    assert series.timing().median_s == pytest.approx(1.075, rel=1e-5)


@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.floats(0.1, 10), st.sampled_from([None, "a", "b"])), max_size=60
    )
)
@settings(max_examples=100, deadline=None)
def test_every_reported_iteration_counts_once_or_is_warm_up(reports):
    series = IterationSeries()
    for number, seconds, rank in reports:
        series.add(number, seconds, rank)
    timing = series.timing()
    if timing is not None:
        assert timing.steps + timing.warm_up == len({number for number, _, _ in reports})
        assert min(s for _, s, _ in reports) <= timing.low_s <= timing.median_s <= timing.high_s
        assert timing.high_s <= max(s for _, s, _ in reports) + 1e-9


def test_the_median_and_the_spread_are_those_of_the_steps():
    seconds = [1.0 + 0.01 * (7 * number % 20) for number in range(40)]
    timing = _timing(steps(1, 3) + "".join(step(4 + i, 1000 * s) for i, s in enumerate(seconds)))
    assert timing.median_s == pytest.approx(median(seconds), abs=1e-4)
    assert timing.low_s == pytest.approx(1.02, abs=0.01)
    assert timing.high_s == pytest.approx(1.17, abs=0.01)
