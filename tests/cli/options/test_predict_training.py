"""``predict --tokens`` and ``--assume``: a whole training in JSON and text."""

import pytest
from command_runs import is_finite, plan_text, refused, run, write


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "plan.yaml", plan_text())


def test_a_training_in_json(file):
    found = run("predict", file, "--tokens", "300B", "--assume", "spare_nodes=1", "--json").data
    assert is_finite(found)
    training = found["training"]
    assert training["steps"] == -(-300 * 10**9 // (4096 * 64))
    assert training["days"]["low"] < training["days"]["value"] < training["days"]["high"]
    assert training["days"]["value"] > training["days_without_failures"]["value"]
    dear = run("predict", file, "--tokens", "300B", "--assume", "usd_per_device_hour=100", "--json").data
    assert dear["training"]["usd"]["value"] > training["usd"]["value"]
    assert dear["usd_per_hour"] == pytest.approx(800)


def test_without_tokens_there_is_goodput_and_no_training(file):
    found = run("predict", file, "--json").data
    assert found["training"] is None
    assert 0.9 < found["goodput"]["share"] < 1
    assert "Goodput" in run("predict", file).out


def test_a_device_whose_failures_nobody_counted(tmp_path):
    file = write(tmp_path / "plan.yaml", plan_text(cluster="mi300x x 8"))
    found = run("predict", file, "--tokens", "1T", "--json").data
    assert found["goodput"] is None
    assert found["origin"]["goodput"].startswith("null: nobody has said")
    assert found["training"]["days"] == found["training"]["days_without_failures"]
    assert "Goodput" not in run("predict", file, "--tokens", "1T").out
    known = run("predict", file, "--assume", "failures_per_1000_node_days=3", "--json").data
    assert known["goodput"]["nodes"] == 1


def test_the_training_as_text(file):
    shown = run("predict", file, "--tokens", "300B").out
    assert "300.00 B tokens" in shown
    for words in ("days without failures", "device-hours", "USD", "kWh, at most"):
        assert words in shown


def test_everything_wrong_is_said_at_once(file):
    said = refused("predict", file, "--tokens", "many", "--assume", "spares=1", "--set", "tp=3")
    assert "tokens = 'many'" in said
    assert "spare_nodes" in said
    assert "layout" in said
