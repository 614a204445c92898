"""CPU seconds of whole commands from cold: the least of a few runs, so that a busy machine does not matter.

Modules are compiled, as they are where the package is installed.
"""

import resource
import subprocess
import sys

import pytest
from command_runs import command, plan_text, write

LLAMA = ("llama-3.1-70b", "--on", "h100-sxm-80gb x 64", "--seq-len", "8192", "--global-batch", "512")
MIXTRAL = ("mixtral-8x7b", "--on", "a100-sxm-80gb x 32", "--seq-len", "4096", "--global-batch", "256")
RUNS = 4
COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}
LIBRARIES = "import numpy, numpy.typing, pydantic, ruamel.yaml, typer"
LOADED_S = 0.33
"""What these take to load where help and predictions may take the seconds below: elsewhere as many times as long."""


def least_cpu_s(limit_s, *arguments):
    """CPU seconds of the quickest of ``RUNS`` runs; stops at the first that is quick enough."""
    return _least(limit_s, lambda: command(*arguments, env=COMPILED))


def _least(limit_s, run):
    least = float("inf")
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run().returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if least <= limit_s:
            break
    return least


@pytest.fixture(scope="module")
def pace():
    """How many times as long as usual the libraries take to load just now; no less than once."""
    loads = [sys.executable, "-c", LIBRARIES]
    return max(1.0, _least(LOADED_S, lambda: subprocess.run(loads, check=False)) / LOADED_S)


def test_help(pace):
    assert least_cpu_s(0.4 * pace, "--help") <= 0.4 * pace


@pytest.mark.parametrize("layout", ["{dp_shard: 4, tp: 2}", "{pp: 8}"])
def test_predict(tmp_path, layout, pace):
    file = write(tmp_path / "plan.yaml", plan_text(layout=layout))
    assert least_cpu_s(0.8 * pace, "predict", str(file)) <= 0.8 * pace


@pytest.mark.parametrize("question", [LLAMA, MIXTRAL], ids=["llama", "mixtral"])
def test_plan(question):
    assert least_cpu_s(3.0, "plan", *question) <= 3.0


def test_a_large_question():
    question = ("deepseek-v3", "--on", "h800-sxm-80gb x 256", "--seq-len", "4096", "--global-batch", "1024")
    assert least_cpu_s(6.0, "plan", *question) <= 6.0
