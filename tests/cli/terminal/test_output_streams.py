"""Readers that go away, full disks, terminals with small alphabets, paths that are no text."""

import json
import subprocess
import sys

import pytest
from command_runs import command, plan_text, write

FULL = "/dev/full"


@pytest.fixture
def plan_file(tmp_path):
    """A plan on a stack and device whose runs were seen, of which there is nothing to remark."""
    return write(tmp_path / "plan.yaml", plan_text(cluster="b200 x 8"))


VERBS = [("predict", "PLAN"), ("predict", "PLAN", "--json"), ("export", "PLAN", "--to", "megatron")]
VERBS += [("describe", "deepseek-v3"), ("compare", "PLAN", "PLAN")]


def filled(arguments, plan_file):
    return [str(plan_file) if argument == "PLAN" else argument for argument in arguments]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_a_reader_that_goes_away_is_no_error(plan_file, arguments):
    start = "from meshwright.cli.main import main; main()"
    line = [sys.executable, "-c", start, *filled(arguments, plan_file)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 0


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_a_full_disk_is_a_message(plan_file, arguments):
    with open(FULL, "wb") as full:
        done = command(*filled(arguments, plan_file), stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == b"Error: reading or writing failed: No space left on device.\n"


@pytest.mark.slow
def test_a_terminal_with_a_small_alphabet_gets_escapes(plan_file):
    for arguments in (("plan", "llama-3.2-1b", "--on", "h100-sxm-80gb x 8"), ("predict", str(plan_file))):
        question = ("--seq-len", "2048", "--global-batch", "8") if arguments[0] == "plan" else ()
        done = command(*arguments, *question, env={"PYTHONIOENCODING": "ascii"})
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.isascii()


@pytest.mark.slow
def test_json_stays_json_with_a_small_alphabet_and_odd_paths(plan_file):
    for encoding in ("ascii", "utf-8", "latin-1"):
        done = command("predict", plan_file, "--set", "tp=3", "--json", env={"PYTHONIOENCODING": encoding})
        assert done.returncode == 2
        assert "8 / (1·1·1·3)" in json.loads(done.stdout.decode("utf-8"))["problems"][0]["rule"]
    done = command("predict", b"no\xfftext.yaml", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout.decode("utf-8"))["problems"][0]["value"] == "no\udcfftext.yaml"
