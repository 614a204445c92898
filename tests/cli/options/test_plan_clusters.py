"""``plan`` on several clusters, with an objective, a budget, a deadline: JSON, text, exit codes."""

import pytest
from command_runs import is_finite, refused, run, write

KEPT = [word for choice in ("cp=1", "recompute=none", "micro_batch=1") for word in ("--keep", choice)]
QUESTION = ("--seq-len", 2048, "--global-batch", 16, *KEPT)
SEVERAL = ("--on", "h100-sxm-80gb x <=4", "--on", "a100-sxm-80gb x 2")
ASKED = ("plan", "llama-3.2-1b", *QUESTION)


def test_several_clusters_in_json():
    found = run(*ASKED, *SEVERAL, "--tokens", "10B", "--objective", "cost", "--top", 2, "--json").data
    assert is_finite(found)
    assert (found["objective"], found["per"]) == ("cost", "training")
    assert len(found["clusters"]) == 4
    assert len(found["plans"]) == 2
    best, second = (proposal["predict"]["training"]["usd"] for proposal in found["plans"])
    assert best["low"] < best["value"] < best["high"]
    assert best["value"] <= second["value"]
    pareto = [row["cluster"] for row in found["pareto"]]
    assert found["plans"][0]["plan"]["cluster"] in pareto
    assert [row["seconds"] for row in found["pareto"]] == sorted(row["seconds"] for row in found["pareto"])
    assert all(row["plan"]["cluster"] == row["cluster"] for row in found["pareto"])


def test_without_tokens_the_set_is_that_of_a_step():
    found = run(*ASKED, *SEVERAL, "--top", 1, "--json").data
    assert found["per"] == "step"
    (best,) = found["plans"]
    assert best["predict"]["training"] is None
    row = next(row for row in found["clusters"] if row["cluster"] == best["plan"]["cluster"])
    assert row["seconds"] == pytest.approx(row["step_time_s"] / row["goodput"])


def test_several_clusters_as_text(tmp_path):
    file = tmp_path / "plan.yaml"
    shown = run(*ASKED, *SEVERAL, "--tokens", "10B", "--why", "-o", file).out
    assert "Clusters: " in shown
    assert "Beaten by none in time, money and energy of a training" in shown
    assert "Plan 1 is for h100-sxm-80gb x 4." in shown
    assert "Not searched" in shown or "4 of 4" in shown
    assert "cluster: h100-sxm-80gb x 4" in file.read_text(encoding="utf-8")
    assert run("predict", file, "--tokens", "10B").code == 0


def test_one_cluster_has_no_table_of_clusters():
    assert "Clusters: " not in run(*ASKED, "--on", "h100-sxm-80gb x 4").out


def test_a_budget_that_is_too_small_is_no():
    done = run(*ASKED, *SEVERAL, "--tokens", "10B", "--budget", 1)
    assert (done.code, done.out) == (1, "")
    assert "No training keeps to the budget of 1 USD." in done.err
    assert "--budget" in done.err.rpartition("Suggestion")[2]
    data = run(*ASKED, *SEVERAL, "--tokens", "10B", "--deadline", 0.0001, "--json").data
    assert data["plans"] == []
    assert "--deadline" in data["suggestion"]


def test_a_price_list(tmp_path):
    file = write(tmp_path / "prices.csv", "on,usd_per_device_hour,max_devices\na100-sxm-80gb,0.5,4\n")
    found = run(*ASKED, "--on", file, "--objective", "cost", "--json").data
    assert {row["cluster"] for row in found["clusters"]} == {
        f"a100-sxm-80gb x {count}" for count in (1, 2, 4)
    }
    assert found["plans"][0]["predict"]["origin"]["usd_per_hour"].startswith(str(file))


def test_everything_wrong_is_said_at_once(tmp_path):
    file = write(tmp_path / "prices.csv", "on,usd_per_device_hour\nh100,zero\n")
    wrong = ("--on", file, "--on", "h100 x <=no", "--objective", "speed", "--budget", -1, "--tokens", "no")
    said = refused(*ASKED, *wrong, "--top", 0, "--stages", "time")
    for words in (
        "line 2",
        "cluster.count",
        "objective = 'speed'",
        "budget = -1",
        "tokens = 'no'",
        "top = 0",
    ):
        assert words in said
