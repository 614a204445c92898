"""`predict --assume churn_per_hour=X`: rows in the report, the plan's own step unchanged, refusals by name."""

import json

import pytest

from meshwright import api
from meshwright.errors import InputError
from meshwright.present.plan_answers.prediction import render_report

PLAN = {
    "plan": 1,
    "model": "llama-3.1-8b",
    "cluster": "h100-sxm-80gb x 16",
    "stack": "megatron-core",
    "workload": {"seq_len": 4096, "global_batch": 16},
    "layout": {"tp": 2, "pp": 4, "dp_replicate": 2},
    "sharding": "none",
}


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(json.dumps(PLAN), encoding="utf-8")
    return path


def test_rows_stand_in_the_report_and_its_step_stays(plan, capsys):
    calm, stormy = api.predict(plan), api.predict(plan, assume=["churn_per_hour=1", "restart_s=60"])
    assert calm.churn is None
    assert stormy.step_time_s == calm.step_time_s
    assert [list(row) for row in stormy.churn] == [
        ["routing", "step_time_s", "step_time_low_s", "step_time_high_s", "load_ratio"]
    ] * 3
    assert [row["routing"] for row in stormy.churn] == ["fixed", "swarm", "skip"]
    assert "replaced after 60 s" in stormy.origin["churn"]
    render_report(stormy.to_json(), None)
    printed = capsys.readouterr().out
    assert "load ratio" in printed
    assert "swarm" in printed


def test_an_assumed_speed_scales_the_passes(plan):
    calm = api.predict(plan, assume=["churn_per_hour=0"])
    slow = api.predict(plan, assume=["churn_per_hour=0", f"mfu={calm.mfu / 2}"])
    for row, slower in zip(calm.churn, slow.churn, strict=True):
        assert slower["step_time_s"] == pytest.approx(2 * row["step_time_s"], rel=1e-6)


def test_one_stage_is_refused_by_name(plan):
    with pytest.raises(InputError, match=r"pipeline.stages = 1: .*stages >= 2"):
        api.predict(plan, settings=["pp=1", "dp_replicate=8"], assume=["churn_per_hour=1"])


def test_a_search_refuses_churn():
    with pytest.raises(InputError, match="is for predict with a plan that trains"):
        api.plan(
            "llama-3.1-8b",
            on="h100-sxm-80gb x 8",
            seq_len=4096,
            global_batch=64,
            assume=["churn_per_hour=1"],
        )
