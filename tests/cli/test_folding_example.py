"""The example of Parallel Folding does what its page says, command by command."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from command_runs import run

from meshwright.plans.files.plan_file import load_plan
from meshwright.plans.resolve import resolve
from meshwright.program.lowering.lower_plan import lower
from meshwright.stack.load import load_stack

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE = (EXAMPLES.parent / "docs" / "folding.md").read_text(encoding="utf-8")
LINES = [shlex.split(line) for line in re.findall(r"^meshwright (.*)$", PAGE, re.MULTILINE)]
COMMANDS = {(verb, file): [verb, file, *options] for verb, file, *options in LINES if "--set" not in options}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A copy of the example, and the folder that commands are given in."""
    shutil.copytree(EXAMPLES / "folding", tmp_path / "folding")
    (tmp_path / "persuasion-volume-one.txt").symlink_to(EXAMPLES / "persuasion-volume-one.txt")
    monkeypatch.chdir(tmp_path / "folding")
    return tmp_path / "folding"


def followed(verb, file, code=0):
    """A command of the page, given."""
    done = run(*COMMANDS[verb, file], "--json")
    assert done.code == code, done
    return done.data


@pytest.mark.slow
def test_the_search_keeps_both_degrees(folder):
    (best, *_) = followed("plan", "model")["plans"]
    assert (best["plan"]["layout"]["cp"], best["plan"]["layout"]["ep"]) == (8, 8)
    assert load_plan(folder / "best.yaml").layout.cp == 8


@pytest.mark.slow
def test_the_folded_plan_is_priced_and_explained(folder):
    predicted = followed("predict", "plan.yaml")
    assert predicted["fits"]
    assert predicted["breakdown_s"]["cp"] > 0 < predicted["breakdown_s"]["ep"]
    assert followed("explain", "plan.yaml")["choices"]
    shown = run(*COMMANDS["describe", "plan.yaml"]).out
    assert "grid: {dp_replicate: 1, dp_shard: 1, cp: 8, tp: 1}" in shown
    assert "experts: {ep: 8, etp: 1, edp_shard: 1, edp_replicate: 1" in shown
    assert "devices: 8" in shown


def test_the_folded_plan_is_proven(folder):
    verified = followed("verify", "plan.yaml")
    assert verified["equal"]
    assert {"cp", "long_ring", "ep"} <= verified["features"].keys()


def test_apart_it_takes_the_ranks_that_the_page_says(folder):
    (problem,) = (p for p in followed("check", "apart.yaml", 1)["problems"] if p["severity"] == "error")
    said = f"{problem['severity']}: {problem['field']} = {problem['value']}: {problem['rule']}"
    assert said in PAGE
    assert problem["value"] == 8 * 8


@pytest.mark.slow
def test_it_trains_on_eight_processes(folder):
    measured = followed("run", "plan.yaml")
    assert measured["losses"][-1] < measured["losses"][0] - 0.4


@pytest.mark.slow
def test_all_eight_ranks_compute_what_one_device_computes(folder):
    pytest.importorskip("torch")
    from meshwright.runtime.verify.run_case import run_case_with_clipping
    from meshwright.runtime.verify.verify_case import VerifyCase

    legal = resolve(load_plan(folder / "plan.yaml"))
    setting = legal.setting
    program = lower(legal.long, setting.model, setting.cluster, setting.workload, load_stack("meshwright"))
    outcome = run_case_with_clipping(VerifyCase(program, setting.model), lambda what, part: None)
    assert program.parts.ranks == 8
    assert outcome.caught_by == (), outcome
