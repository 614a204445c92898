"""``plan --capacity`` and ``workload.capacity``: a factor or a mapping, and what is wrong with them."""

import pytest
from command_runs import run
from mixtral_plans import QUESTION, best


def test_what_is_said_of_capacity_is_in_the_plan_and_bounds_the_skew(tmp_path):
    plan = tmp_path / "plan.yaml"
    few = best("--capacity", "{factor: 1, pad: true}", "--routing", "0.5", "-o", str(plan))
    many = best("--capacity", "1.25", "--routing", "0.5")
    assert few["plan"]["workload"]["capacity"] == {
        "factor": 1.0,
        "drop": "probs",
        "scope": "rank",
        "pad": True,
    }
    assert many["plan"]["workload"]["capacity"] == 1.25
    assert few["predict"]["step_time_s"] < many["predict"]["step_time_s"]
    assert run("predict", str(plan), "--json").data["step_time_s"] == few["predict"]["step_time_s"]
    wider = run("predict", str(plan), "--set", "capacity.factor=1.25", "--json").data
    assert wider["step_time_s"] > few["predict"]["step_time_s"]


@pytest.mark.parametrize(
    ("said", "field", "rule"),
    [
        ("many", "workload.capacity.factor", "must be a number"),
        ("0", "workload.capacity.factor", "must be above 0"),
        ("{pad: true}", "workload.capacity.factor", "is required"),
        ("{factor: 1, drop: best}", "workload.capacity.drop", "must be"),
        (
            "{factor: 1, scope: sequence}",
            "workload.capacity.scope",
            "does not count the tokens of a sequence",
        ),
        ("{factor: 5, pad: true}", "workload.capacity.factor", "more places than there are tokens"),
        ("{", "capacity", "cannot be read"),
    ],
)
def test_what_says_no_capacity_is_refused(said, field, rule):
    done = run(*QUESTION, "--capacity", said)
    assert done.code == 2
    text = " ".join(done.err.split())
    assert field in text
    assert rule in text


def test_stacks_that_drop_no_tokens_say_so():
    done = run(*QUESTION, "--stack", "torchtitan", "--capacity", "1")
    assert done.code == 2
    assert "gives experts all tokens" in " ".join(done.err.split())
