"""A plan beside a trace of one of its ranks."""

import json
from pathlib import Path

import pytest

from meshwright import api
from meshwright.errors import InputError

TRACES = Path(__file__).resolve().parents[1] / "ingestion" / "kineto" / "traces"
PLAN = """plan: 1
model: llama-3.1-8b
cluster: a100-sxm-80gb x DEVICES
workload: {seq_len: 4096, global_batch: 128}
layout: {dp_shard: DEVICES}
sharding: zero1
"""


def compared(tmp_path, devices, trace):
    (tmp_path / "plan.yaml").write_text(PLAN.replace("DEVICES", str(devices)))
    return api.compare(tmp_path / "plan.yaml", TRACES / trace)


def test_predicted_and_measured_stand_beside_each_other_and_add_up(tmp_path):
    found = compared(tmp_path, 128, "thinned_rank_0_of_128.json.gz")
    *rows, step = found["rows"]
    assert step["quantity"] == "step"
    for side in ("a", "b"):
        assert sum(row[side] for row in rows) == pytest.approx(step[side])
    assert {row["unit"] for row in found["rows"]} == {"s"}
    worst = max(rows, key=lambda row: abs(row["b"] - row["a"]))
    assert found["largest"] == worst["quantity"]
    assert not any("ranks" in remark for remark in found["remarks"])


def test_a_trace_of_another_number_of_ranks_is_remarked(tmp_path):
    found = compared(tmp_path, 8, "thinned_rank_0_of_128.json.gz")
    assert "the trace is of 128 ranks, the plan has 8" in found["remarks"]


def test_what_is_no_trace_is_wrong_input(tmp_path):
    (tmp_path / "no.json").write_text("{}")
    (tmp_path / "plan.yaml").write_text(PLAN.replace("DEVICES", "8"))
    with pytest.raises(InputError):
        api.compare(tmp_path / "plan.yaml", tmp_path / "no.json")


def test_a_step_that_was_simulated_is_no_measurement(tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN.replace("DEVICES", "8"))
    (tmp_path / "step.json").write_text(json.dumps(api.trace(plan)))
    with pytest.raises(InputError, match="Meshwright has simulated") as caught:
        api.compare(plan, tmp_path / "step.json")
    assert "torch.profiler" in caught.value.problems[0].suggestion


def test_the_plan_comes_first(tmp_path):
    with pytest.raises(InputError, match=r"meshwright compare plan.yaml trace.json"):
        api.compare("trace.json", "plan.yaml")
