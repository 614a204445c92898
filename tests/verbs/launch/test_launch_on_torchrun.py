"""torchrun starts the ranks of a launched plan, and the same command resumes. Slow: torch is loaded many times."""

import subprocess
import sys

import pytest
from launch_cases import START, losses

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


def test_a_plan_trains_under_torchrun_as_on_forked_ranks_and_resumes(plan, environment, tmp_path):
    storage, options = tmp_path / "shared", ("--precision", "fp64", "--cpu", "--schedule", "constant")
    storage.mkdir()
    job = ("launch", plan, "--on", "torchrun", "--storage", storage, "-o", tmp_path / "job", "--json", "--")
    for words in (
        (*job, "--steps", "2", *options),
        (*job, "--steps", "4", *options),
        ("run", plan, "--out", tmp_path / "forked", "--steps", "4", *options),
    ):
        line = [sys.executable, "-c", START, *map(str, words)]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
    assert len(losses(tmp_path / "forked")) == 4
    assert losses(storage / "tiny") == losses(tmp_path / "forked")
