"""``meshwright explain`` from the command line."""

import math

import pytest
from command_runs import is_finite, plan_text, refused, run, write

from meshwright.cli.terminal import progress


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory):
    return write(tmp_path_factory.mktemp("plans") / "plan.yaml", _small())


@pytest.fixture(scope="module")
def data(plan_file):
    """The answer in JSON."""
    return run("explain", plan_file, "--json").data


def _small(**changes):
    small = {
        "model": "llama-3.2-1b",
        "cluster": "h100-sxm-80gb x 2",
        "workload": "{seq_len: 2048, global_batch: 2}",
    }
    return plan_text(**(small | {"layout": "{pp: 2}", "sharding": "none", "pipeline": "{}"} | changes))


def test_it_says_the_same_as_text_and_as_json(plan_file, data):
    done = run("explain", plan_file)
    assert done.code == 0
    assert is_finite(data)
    told = " ".join(done.out.split())
    assert all(" ".join(sentence.split()) in told for sentence in data["summary"])


def test_the_keys_that_scripts_read(plan_file, data):
    assert {
        *("plan", "predict", "summary", "time", "memory", "binds", "sensitivity", "workload", "choices"),
        *("schedule", "rivals", "candidates_feasible", "best", "turns", "smallest_change", "against"),
        *("pareto_memory", "devices", "each", "tie_ratio", "origin"),
    } == data.keys()
    other = run("explain", plan_file, "--against", plan_file, "--json").data
    assert other.keys() == data.keys()


def test_a_plan_that_does_not_fit_is_explained_and_exits_with_1(tmp_path):
    file = write(
        tmp_path / "large.yaml",
        _small(model="llama-3.1-70b", workload="{seq_len: 2048, global_batch: 8}"),
    )
    done = run("explain", file)
    assert done.code == 1
    assert "too much" in done.out


def test_wrong_plans_are_refused_on_either_side(tmp_path, plan_file):
    wrong = write(tmp_path / "wrong.yaml", _small(layout="{pp: 3}"))
    for arguments in ((wrong,), (wrong, "--against", plan_file)):
        message = refused("explain", *arguments)
        assert "\n  layout = 3" in message
        assert "Suggestion: " in message
    assert "\n  against.layout = 3" in refused("explain", plan_file, "--against", wrong)
    assert "missing.yaml" in refused("explain", tmp_path / "missing.yaml")


def test_another_model_against_it_is_refused_by_field_value_rule_and_suggestion(tmp_path, plan_file):
    other = write(tmp_path / "other.yaml", _small(model="qwen3-8b"))
    message = refused("explain", plan_file, "--against", other)
    assert "\n  against = '" in message
    assert "is a plan for qwen3-8b" in message
    assert "Suggestion: a plan for llama-3.2-1b" in message


def test_doubts_about_a_plan_go_to_standard_error(tmp_path, monkeypatch):
    monkeypatch.setattr(
        progress, "LINE_EVERY_S", math.inf
    )  # a slow machine would show its progress there too
    file = write(tmp_path / "plan.yaml", _small(layout="{pp: 2, sequence_parallel: true}"))
    done = run("explain", file)
    told = run("predict", file)
    assert done.err == told.err
