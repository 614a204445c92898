"""The memory ledger's parts against counts by hand, and the bound that the search throws plans away by."""

from dataclasses import replace

import numpy as np
import pytest
from lattice_plans import family

from meshwright.cluster.load import load_cluster
from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.cost.lower_bounds.state_memory import may_fit, state_memory_bound
from meshwright.cost.memory.memory_breakdown import (
    KEYS,
    fits,
    fits_host_memory,
    total_bytes,
    usable_device_bytes,
    workspace_bytes,
)
from meshwright.cost.memory.zero_unsharded_buffers import (
    ZeroBufferRule,
    stage_buffer_bytes,
    unit_buffer_bytes,
)
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.plans.forms.short import ShortLayout
from meshwright.program.model_states.state_elements import Elements
from meshwright.stack.load import load_stack

STACK = load_stack("megatron-core")
STAGE = Elements(1000, 200, 10)


@pytest.mark.parametrize(
    ("sharding", "gather", "reduce", "expected"),
    [
        ("none", "never", "per-step", 0),
        ("none", "never", "per-micro-batch", 0),
        ("zero1", "never", "per-step", 0),
        ("zero2", "never", "per-step", 4 * 1200),
        ("zero3", "per-step", "per-step", (2 + 4) * 1200),
        ("zero3", "per-micro-batch", "per-step", (2 + 4) * 1200),
        ("zero3", "per-micro-batch", "per-micro-batch", 2 * 1200),
        ("zero3", "per-layer", "per-micro-batch", 0),
    ],
)
def test_what_is_whole_during_all_passes(sharding, gather, reduce, expected):
    assert stage_buffer_bytes(ZeroBufferRule(sharding, gather, reduce), STAGE, STACK) == expected


def test_units_hold_what_is_whole_at_once():
    assert ZeroBufferRule("zero3", "per-unit", "per-unit").by_unit
    assert not ZeroBufferRule("zero3", "per-unit", "per-unit").gradients_are_whole
    assert unit_buffer_bytes(2 * 1000, 300, STACK) == 2 * 1000 + 4 * 300


def test_a_plan_fits_when_it_leaves_the_allocator_some_room():
    cluster = load_cluster("h100-sxm-80gb x 8")
    held = cluster.pool.device.memory_bytes
    assert fits(0.9 * held, cluster)
    assert not fits(0.99 * held, cluster)
    assert fits(np.array([1e9, 0.99 * held]), cluster).tolist() == [True, False]
    assert fits(0.9 * held, cluster, held)
    assert not fits(0.9 * held, cluster, held // 2)


def test_the_clusters_own_constants_say_what_is_usable():
    cluster = load_cluster("h100-sxm-80gb x 8")
    held = cluster.pool.device.memory_bytes
    roomy = replace(cluster, calibration=(("usable_memory", 0.995), ("workspace_bytes", 1e9)))
    assert usable_device_bytes(roomy) == 0.995 * held
    assert fits(0.99 * held, roomy)
    assert workspace_bytes(roomy) == 1e9 > workspace_bytes(cluster)
    assert fits_host_memory(79, cluster, 100)
    assert not fits_host_memory(81, cluster, 100)
    assert fits_host_memory(81, replace(cluster, calibration=(("usable_host_memory", 0.9),)), 100)


def test_a_total_is_the_sum_of_the_ledger():
    assert total_bytes({key: 2**i for i, key in enumerate(KEYS)}) == 2 ** len(KEYS) - 1


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("model", ["tied", "untied", "sparse"])
@pytest.mark.parametrize("stack", ["megatron-core", "torchtitan"])
def test_the_floor_of_memory_is_never_above_the_peak(model, stack):
    chosen = family(model, "a100-sxm-80gb x 16", stack, 60, seed=5)
    plans = from_shorts(list(chosen.plans))
    estimates = evaluate(plans, chosen.setting)
    floor = state_memory_bound(plans, chosen.setting)
    assert (floor > 0).all()
    assert (floor <= estimates.total_bytes).all()
    assert may_fit(plans, chosen.setting)[estimates.fits].all()


def test_each_step_of_zero_cuts_one_more_kind_of_state():
    """With pp = 1 and eight ways: optimizer, then gradients, then parameters are an eighth."""
    chosen = family("tied", "h100-sxm-80gb x 8", "megatron-core", 1, seed=0)
    plans = [
        chosen.header.model_copy(
            update={
                "sharding": sharding,
                "layout": ShortLayout(**{"dp_replicate" if sharding == "none" else "dp_shard": 8}),
            }
        )
        for sharding in SHARDINGS
    ]
    memory = evaluate(from_shorts(plans), chosen.setting).memory
    elements = chosen.setting.model.parameters
    padded = np.ceil(32000 / 128) * 128 - 32000
    whole = elements + padded * chosen.setting.model.architecture.hidden
    assert memory["parameters"] / (2 * whole) == pytest.approx([1, 1, 1, 1 / 8], rel=1e-4)
    assert memory["optimizer"] / (12 * whole) == pytest.approx([1, 1 / 8, 1 / 8, 1 / 8], rel=1e-4)
    assert memory["gradients"][:2] / (4 * whole) == pytest.approx([1, 1], rel=1e-4)
    assert memory["buffers"][:2].tolist() == [0, 0]
