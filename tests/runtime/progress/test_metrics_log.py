import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from math import inf, nan

import pytest
from example_step_metrics import METRICS
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.ingestion.logs.events import Restart, Step
from meshwright.ingestion.logs.readers.meshwright_runtime import Runtime
from meshwright.runtime.progress.metrics_log import open_log
from meshwright.runtime.progress.step_metrics import StepMetrics


def run(path, first, stop):
    """Steps ``first`` up to ``stop``, each with an evaluation behind it."""
    with open_log(path, "0.2.0", {"plan": {}}, first) as log:
        for step in range(first, stop):
            log.step(replace(METRICS, step=step))
            log.evaluation(step, 2.0, 64)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def steps(path):
    return [line["step"] for line in lines(path) if "loss" in line]


def test_every_line_is_there_as_soon_as_it_is_written(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    with open_log(path, "0.2.0", {"plan": {}}, 0) as log:
        assert lines(path) == [{"meshwright": "0.2.0", "plan": {}}]
        log.step(METRICS)
        assert lines(path)[1] == METRICS.to_json()


OPTIONAL = {"loss_islands", "waited_s", "sequences_not_seen"}


def test_a_step_says_all_and_that_it_was_measured(tmp_path):
    run(tmp_path / "log", 0, 1)
    _, step, evaluation = lines(tmp_path / "log")
    assert step.keys() == {*StepMetrics.__dataclass_fields__, "origin"} - OPTIONAL
    assert step["origin"] == evaluation["origin"] == "measured"
    assert evaluation["held_out_loss"] == 2.0


@settings(deadline=None, max_examples=50)
@given(
    runs=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=5),
    torn=st.binary(max_size=5) | st.just(b'{"step": 3, "lo'),
)
def test_however_often_it_is_resumed_each_step_is_there_once(runs, torn, tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "metrics.jsonl"
    run(path, 0, 5)
    done = 5
    for first, count in runs:
        first = min(first, done)  # a run resumes where its checkpoint is, at or before its last step
        with open(path, "ab") as file:
            file.write(torn.replace(b"\n", b""))
        run(path, first, first + count)
        done = first + count
        assert steps(path) == list(range(done))
        assert [line["step"] for line in lines(path) if "held_out_loss" in line] == list(range(done))


def test_starts_stay_where_steps_follow_them(tmp_path):
    path = tmp_path / "log"
    run(path, 0, 3)
    run(path, 3, 3)  # died before its first step
    run(path, 3, 5)
    run(path, 4, 6)
    assert ["start" if "meshwright" in line else line["step"] for line in lines(path)] == [
        *("start", 0, 0, 1, 1, 2, 2, "start", 3, 3, "start", 4, 4, 5, 5)
    ]


@pytest.mark.parametrize("length", range(1, 25))
def test_a_first_line_that_was_half_written_is_no_obstacle(tmp_path, length):
    path = tmp_path / "log"
    path.write_text('{"meshwright": "0.2.0", "plan": {}}'[:length])
    run(path, 0, 1)
    assert steps(path) == [0]


@pytest.mark.parametrize(
    "content", [b"a thesis\n", b"\0" * 100, b'{"step": 1}\n', b"[" * 10**5, b'{"mesh'.ljust(40), b"\xff\n"]
)
def test_a_file_that_is_something_else_is_left_alone(tmp_path, content):
    path = tmp_path / "thesis"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is no log"), open_log(path, "0.2.0", {}, 0):
        pass
    assert path.read_bytes() == content


def test_a_place_that_cannot_be_written_is_wrong_input(tmp_path):
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "file" / "log", tmp_path / "pipe"):
        with pytest.raises(InputError, match="cannot be written"), open_log(path, "0.2.0", {}, 0):
            pass


@pytest.mark.parametrize(("value", "word"), [(nan, "nan"), (inf, "inf"), (-inf, "-inf")])
def test_numbers_that_json_has_no_word_for_are_named(tmp_path, value, word):
    with open_log(tmp_path / "log", "0.2.0", {}, 0) as log:
        log.step(replace(METRICS, loss=value, grad_norm=value))
    _, step = lines(tmp_path / "log")
    assert (step["loss"], step["grad_norm"]) == (None, None)
    assert step["not_finite"] == {"loss": word, "grad_norm": word}


def test_our_own_reader_of_logs_understands_it(tmp_path):
    run(tmp_path / "log", 0, 2)
    text = (tmp_path / "log").read_text()
    events = [event for line in text.splitlines() for event in Runtime().events(line)]
    assert [event.iteration for event in events if isinstance(event, Step)] == [0, 1]
    assert [event.pace_s for event in events if isinstance(event, Step)] == [2.0, 2.0]
    assert sum(isinstance(event, Restart) for event in events) == 1


def test_a_process_that_is_killed_leaves_the_lines_that_it_wrote(tmp_path):
    code = (
        "import os, sys; from pathlib import Path\n"
        "from meshwright.runtime.progress.metrics_log import open_log\n"
        "with open_log(Path(sys.argv[1]), '0.2.0', {}, 0) as log:\n"
        "    log.evaluation(0, 1.0, 1)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    with suppress(subprocess.CalledProcessError):
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "log")], check=True)
    assert lines(tmp_path / "log")[1]["held_out_loss"] == 1.0
