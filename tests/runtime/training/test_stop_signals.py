"""What a run says and does when its people go away or ask it to stop, seen from another process."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("torch")

from training_runs import small_run

PATIENCE_S = 60.0
STEPS = 10**6
START = "from meshwright.cli.main import main; main()"


@pytest.fixture
def started(tmp_path):
    """A run of very many steps by the command line, whose standard error is a pipe."""
    plan, out = small_run(tmp_path, ranks=2, layout={"dp_replicate": 2}).path, tmp_path / "run"
    command = [sys.executable, "-c", START, "run", plan, "--steps", STEPS, "--out", out]
    words = [str(word) for word in [*command, "--precision", "fp32"]]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, **pipes, text=True, preexec_fn=heed_signals) as process:
        yield process, out
        process.kill()


def heed_signals():
    """Undo what a shell or nohup does to jobs in the background: these ignore signals, and so do those they start."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def wait_for_step(out, number):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        log = out / "metrics.jsonl"
        if log.exists() and len(log.read_bytes().splitlines()) > number + 1:
            return
        time.sleep(0.02)
    pytest.fail(f"no step {number} after {PATIENCE_S} s")


@pytest.mark.slow
def test_a_reader_who_leaves_and_a_terminal_that_hangs_up_twice_leave_a_checkpoint(started):
    process, out = started
    process.stderr.close()
    wait_for_step(out, 8)
    for _ in range(2):
        os.kill(process.pid, signal.SIGHUP)
    shown, code = process.stdout.read(), process.wait(PATIENCE_S)
    assert code == 0, shown
    assert "Stopped by a signal" in shown
    (checkpoint,) = (out / "checkpoints").iterdir()
    last = json.loads((out / "metrics.jsonl").read_bytes().splitlines()[-1])
    assert checkpoint.name == f"step-{last['step'] + 1:08d}"


def test_a_first_interrupt_is_acknowledged_and_says_what_a_second_does(started):
    process, out = started
    wait_for_step(out, 2)
    os.kill(process.pid, signal.SIGINT)
    shown = process.stderr.read()
    assert process.wait(PATIENCE_S) == 0, shown
    assert "Stopping: the step under way is finished and a checkpoint saved; a second signal ends" in shown
