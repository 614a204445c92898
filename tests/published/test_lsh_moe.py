"""LSH-MoE (arXiv 2411.08446): 1.28 to 2.2 times the speed of a training that spends 45 % of its time on all-to-alls.

Assumed, for the paper's models and links are not in the facts that this project has: Qwen3-30B-A3B on 16 A100 in two
nodes without NVLink, 1,536 tokens in a sequence, ZeRO-3, and a fifth of rows as buckets. Experts then process fewer
rows too, and tokens are hashed.
"""

import pytest

from meshwright import api
from meshwright.cost.plan_report import closed_form
from meshwright.plans.layers.recompute_by_layer import layer_recomputes
from meshwright.simulate.plan_estimate import simulated_estimate
from meshwright.verbs.load_plan import load

PLAN = """
plan: 1
model: qwen3-30b-a3b
cluster: a100-pcie-80gb x 16
workload: {seq_len: 1536, global_batch: 512}
stack: meshwright
layout: {dp_shard: 16, ep: 16}
sharding: zero3
pipeline: {micro_batch: 1}
"""
ENTRY = """
synchronise:
  - {state: expert_token, over: ep, compress: {lsh: {hashes: 6, width: 16, distinct: DISTINCT}}}
"""
SPEED_UPS = (1.28, 2.2)


def file_of(folder, distinct=None):
    path = folder / f"{distinct}.yaml"
    path.write_text(PLAN + (ENTRY.replace("DISTINCT", str(distinct)) if distinct else ""))
    return path


@pytest.fixture
def exact(tmp_path):
    return api.predict(file_of(tmp_path)).to_json()


def test_exchanges_take_the_papers_share(exact):
    assert exact["breakdown_s"]["ep"] / exact["step_time_s"] == pytest.approx(0.45, abs=0.01)


@pytest.mark.parametrize("distinct", [0.1, 0.2, 0.5])
def test_speed_ups_are_within_the_papers(tmp_path, exact, distinct):
    found = api.predict(file_of(tmp_path, distinct)).to_json()
    assert SPEED_UPS[0] < exact["step_time_s"] / found["step_time_s"] < SPEED_UPS[1]
    share = found["breakdown_s"]["ep"] / exact["breakdown_s"]["ep"]
    assert distinct < share < distinct + 0.03, "latencies stay"


def test_hashing_costs_time_where_no_token_is_spared(tmp_path, exact):
    found = api.predict(file_of(tmp_path, 1.0)).to_json()
    assert 1 < found["step_time_s"] / exact["step_time_s"] < 1.1
    assert found["breakdown_s"]["ep"] == pytest.approx(exact["breakdown_s"]["ep"], rel=1e-12)


def test_closed_forms_are_the_simulation(tmp_path):
    resolved = load(file_of(tmp_path, 0.2), (), None)
    recomputes = layer_recomputes(resolved.long, resolved.setting.model.architecture.layers)
    estimates = (
        closed_form(resolved.short, resolved.setting, resolved.long.pipeline.stages, recomputes),
        simulated_estimate(resolved.long, resolved.setting),
    )
    formula_s, played_s = (sum(estimate.parts.values()) for estimate in estimates)
    assert formula_s == pytest.approx(played_s, rel=0.03)
    assert estimates[0].method != estimates[1].method
