"""Runs on a machine whose constants are known here and hidden from the fit."""

from dataclasses import replace

import numpy as np

from meshwright.calibration.observations import Observation
from meshwright.cluster.load import load_cluster
from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.cost.constant_values import with_values
from meshwright.model.load import load_model
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.setting import Setting
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload

PLANS = (
    {"layout": {"tp": 8, "dp_shard": 8}, "sharding": "zero1"},
    {"layout": {"tp": 4, "dp_shard": 16}, "sharding": "zero1"},
    {"layout": {"tp": 2, "pp": 4, "dp_shard": 8}, "sharding": "zero1"},
    {"layout": {"dp_shard": 64}, "sharding": "zero3"},
    {"layout": {"dp_shard": 64}, "sharding": "zero3", "recompute": "full", "pipeline": {"micro_batch": 2}},
    {"layout": {"pp": 8, "dp_shard": 8}, "sharding": "zero1"},
)


def setting(device="h100-sxm-80gb", count=64, stack="megatron-core", tiers=()):
    workload = Workload(seq_len=4096, global_batch=128)
    cluster = replace(load_cluster(f"{device} x {count}"), tiers=tiers)
    return Setting(load_model("llama-3.1-8b"), cluster, workload, load_stack(stack))


def observation(hidden, plans=PLANS, source="hidden", noise=0.0, seed=0, **of):
    """Measured times are what the cost model says with the hidden constants, times noise."""
    here = setting(**of)
    header = {"plan": 1, "model": "llama-3.1-8b", "cluster": here.cluster.name, "stack": here.stack.name}
    header["workload"] = {"seq_len": 4096, "global_batch": 128}
    arrays = from_shorts([ShortPlan.model_validate(header | plan) for plan in plans])
    seconds = evaluate(arrays, with_values(here, hidden)).step_s
    seconds = seconds * np.exp(np.random.default_rng(seed).normal(0, noise, len(plans)))
    return Observation(here, arrays, seconds, (source,) * len(plans))
