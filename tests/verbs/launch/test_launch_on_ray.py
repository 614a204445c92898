"""A local Ray cluster starts and supervises ranks. Slow: it takes seconds to start."""

import signal
import subprocess
import sys
import time

import pytest
from launch_cases import START, losses

from meshwright.launchers.rayjob import PROGRAM
from meshwright.verbs.launch.launch_plan import prepared
from meshwright.verbs.launch.launch_request import LaunchRequest

pytest.importorskip("ray")
pytestmark = pytest.mark.slow
STEPS = 4


def test_a_plan_trains_on_ray_as_on_forked_ranks(plan, environment, tmp_path):
    storage, options = tmp_path / "shared", ("--steps", str(STEPS), "--precision", "fp64", "--cpu")
    storage.mkdir()
    for words in (
        (
            "launch",
            plan,
            "--on",
            "ray",
            "--storage",
            storage,
            "-o",
            tmp_path / "job",
            "--json",
            "--",
            *options,
        ),
        ("run", plan, "--out", tmp_path / "forked", *options),
    ):
        line = [sys.executable, "-c", START, *map(str, words)]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
    assert len(losses(tmp_path / "forked")) == STEPS
    assert losses(storage / "tiny") == losses(tmp_path / "forked")


def supervised(plan, environment, folder, command, *options):
    """Start the program of a job with a command in the place of the run."""
    text = prepared(plan, LaunchRequest(on="ray", dry=True)).files[PROGRAM]
    (folder / PROGRAM).write_text(text, encoding="utf-8")
    words = [sys.executable, PROGRAM, "--processes", "2", *options, "--", "bash", "-c", command]
    return subprocess.Popen(words, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def test_a_rank_that_fails_is_named_and_all_start_again(plan, environment, tmp_path):
    command = (
        f'echo "$RANK of $WORLD_SIZE at $MASTER_ADDR" >> "{tmp_path}/started-$RANK"\n'
        f'[[ $(wc -l < "{tmp_path}/started-$RANK") == 2 ]] && exit 0\n'
        '[[ "$RANK" == 1 ]] && exit 7\nsleep 600\n'
    )
    process = supervised(plan, environment, tmp_path, command, "--max-restarts", "1")
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "rank 1 on node 0 ended with 7; all start again" in said
    for rank in (0, 1):
        lines = (tmp_path / f"started-{rank}").read_text(encoding="utf-8").splitlines()
        assert [line.split(" at ")[0] for line in lines] == [f"{rank} of 2"] * 2


def test_a_signal_ends_the_ranks_in_order(plan, environment, tmp_path):
    command = (
        f'trap "touch {tmp_path}/saved-$RANK; exit 0" TERM\ntouch {tmp_path}/up-$RANK\n'
        "while true; do sleep 0.1; done"
    )
    process = supervised(plan, environment, tmp_path, command, "--max-restarts", "3")
    while not all((tmp_path / f"up-{rank}").exists() for rank in (0, 1)):
        assert process.poll() is None
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode == 0
    assert all((tmp_path / f"saved-{rank}").exists() for rank in (0, 1))


def test_wrong_input_is_not_tried_again(plan, environment, tmp_path):
    process = supervised(plan, environment, tmp_path, "exit 2", "--max-restarts", "3")
    _, said = process.communicate(timeout=300)
    assert process.returncode == 2
    assert said.count("ended with 2; not started again") == 1
