"""The command line on ranks that a launcher started: one of them speaks."""

import subprocess
import sys
import time

import pytest
from command_runs import plan_text, refused, run, write

from meshwright.cli.terminal import launcher_ranks

START = "from meshwright.cli.main import main; main()"


def as_rank(monkeypatch, rank, local_rank):
    """This process as one of 64 ranks of torchrun, eight of a host."""
    place = {"RANK": rank, "LOCAL_RANK": local_rank, "WORLD_SIZE": 64, "MASTER_PORT": 29500}
    for name, value in place.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_ADDR", "node001")


@pytest.mark.parametrize(
    ("rank", "local_rank", "waits"),
    [(0, 0, []), (8, 0, [launcher_ranks.OTHERS_FIRST_S]), (9, 1, [2 * launcher_ranks.OTHERS_FIRST_S])],
)
def test_who_is_not_the_first_lets_the_first_speak(monkeypatch, rank, local_rank, waits):
    as_rank(monkeypatch, rank, local_rank)
    waited = []
    monkeypatch.setattr(launcher_ranks.time, "sleep", waited.append)
    assert "did you mean llama-3.1-8b" in refused("describe", "lama-3.1-8b")
    assert waited == waits


def test_a_process_that_nothing_launched_waits_for_nobody(monkeypatch):
    monkeypatch.setattr(launcher_ranks.time, "sleep", lambda seconds: pytest.fail("it waited"))
    refused("describe", "lama-3.1-8b")


@pytest.mark.parametrize("line", [("verify",), ("run", "--emulate")])
def test_what_starts_ranks_of_its_own_is_done_once(monkeypatch, tmp_path, line):
    as_rank(monkeypatch, 3, 3)
    done = run(*line, write(tmp_path / "plan.yaml", plan_text()))
    assert (done.code, done.out, done.err) == (0, "", "")


def test_ended_ranks_say_nothing(monkeypatch):
    as_rank(monkeypatch, 3, 3)
    command = [sys.executable, "-c", START, "describe", "lama-3.1-8b"]
    rank = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(1.5)
    rank.terminate()
    assert rank.communicate(timeout=10) == (b"", b"")
