"""The parts of a step in other cuts: each sums to what the report says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.load import load_cluster
from meshwright.cost.plan_report import closed_form
from meshwright.cost.step_breakdown import step_breakdown
from meshwright.model.load import load_model
from meshwright.plans.arrays.short_plans import short_plan
from meshwright.plans.forms.short import ShortPlan, WorkloadSpec
from meshwright.plans.resolve import resolve
from meshwright.plans.setting import Setting
from meshwright.search.space.legal_plans import enumerate_space
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload

CLOSE = {"rel": 1e-9, "abs": 1e-9}
HEADER = {
    "plan": 1,
    "model": "llama-3.2-1b",
    "cluster": "h100-sxm-80gb x 8",
    "workload": WorkloadSpec(seq_len=2048, global_batch=32),
    "stack": "meshwright",
}


def _plan(**changes):
    return resolve(
        ShortPlan.model_validate(HEADER | {"layout": {"dp_shard": 8}, "sharding": "zero1"} | changes)
    )


def _both(resolved):
    return step_breakdown(resolved.short, resolved.setting), closed_form(
        resolved.short, resolved.setting
    ).parts


def _check_sums(found, parts):
    inside = sum(parts[name] for name in ("compute", "tp", "cp", "ep", "host"))
    assert max(found.work_s) == found.work_s[found.rank]
    assert sum(found.kernels_s.values()) == pytest.approx(parts["compute"], **CLOSE)
    assert sum(found.passes_s.values()) == pytest.approx(max(found.work_s), **CLOSE)
    assert sum(found.passes_s.values()) >= inside - 1e-9
    length = found.mean_work_s + found.fill_drain_s + found.imbalance_s
    assert length == pytest.approx(max(found.work_s) + parts["bubble"], **CLOSE)


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6))
def test_every_cut_sums_to_the_report(seed):
    workload = Workload(seq_len=2048, global_batch=32)
    names = load_model("llama-3.2-1b"), load_cluster(HEADER["cluster"]), workload, load_stack("megatron-core")
    setting = Setting.of(*names)
    plans = enumerate_space(setting).plans
    row = int(np.random.default_rng(seed).integers(len(plans)))
    short = short_plan(plans, row, ShortPlan.model_validate(HEADER | {"stack": "megatron-core"}))
    _check_sums(step_breakdown(short, setting), closed_form(short, setting).parts)


@pytest.mark.parametrize(
    "pipeline",
    [
        {"schedule": "zb-h1"},
        {"schedule": "zb-v", "virtual_stages": 2},
        {"schedule": {"name": "1f1b", "vocabulary": "vocab-1"}},
        {"schedule": "dualpipe", "virtual_stages": 2},
    ],
)
def test_schedules_that_are_played_do_too(pipeline):
    found, parts = _both(_plan(layout={"pp": 4, "dp_shard": 2}, pipeline=pipeline))
    _check_sums(found, parts)
    assert found.vocabulary_s > 0


def test_split_passes_are_told_apart():
    found, _ = _both(_plan(layout={"pp": 4, "dp_shard": 2}, pipeline={"schedule": "zb-h1"}))
    assert list(found.passes_s) == ["F", "I", "W"]
    assert all(found.passes_s.values())


def test_full_recomputation_is_one_more_forward_pass_of_the_layers():
    none, full = (_both(_plan(recompute=recompute))[0] for recompute in ("none", "full"))
    assert none.recompute_s == 0
    assert full.recompute_s == pytest.approx(
        sum(full.passes_s.values()) - sum(none.passes_s.values()), rel=1e-6
    )


def test_without_a_pipeline_nothing_is_filled_and_nothing_is_uneven():
    found, _ = _both(_plan())
    assert found.work_s == (pytest.approx(found.mean_work_s),)
    assert (found.fill_drain_s, found.imbalance_s) == (pytest.approx(0, abs=1e-9), pytest.approx(0, abs=1e-9))


def test_equal_stages_leave_only_the_bubble_of_the_schedule():
    """Of P stages of time t and M micro-batches 1F1B fills and drains for (P − 1)·t; the head makes them uneven."""
    found, _ = _both(_plan(layout={"pp": 4, "dp_shard": 2}, pipeline={"micro_batch": 1}))
    micro_batches, ranks = 16, 4
    assert found.fill_drain_s == pytest.approx((ranks - 1) * found.mean_work_s / micro_batches, rel=1e-6)
    assert found.imbalance_s > 0
