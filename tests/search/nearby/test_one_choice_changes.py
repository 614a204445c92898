"""Steps: plans one choice away, each once, with as many devices."""

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.plans.forms.short import ShortPlan, WorkloadSpec
from meshwright.plans.overrides import MESH_AXES, apply_overrides
from meshwright.search.nearby.one_choice_changes import schedule_steps, smallest_factor, steps
from meshwright.stack.load import load_stack

OURS, MEGATRON = load_stack("meshwright"), load_stack("megatron-core")
DEGREE = st.sampled_from((1, 2, 3, 4))


def _plan(layout, **changes):
    return ShortPlan(
        plan=1,
        model="llama-3.2-1b",
        cluster="h100-sxm-80gb x 8",
        workload=WorkloadSpec(seq_len=2048, global_batch=48),
        layout=layout,
        **changes,
    )


@st.composite
def plans(draw):
    sharding = draw(st.sampled_from(("none", "zero1", "zero3")))
    layout = {axis: draw(DEGREE) for axis in MESH_AXES}
    if sharding == "none":
        layout["dp_shard"] = 1
    chunks = draw(st.sampled_from((1, 2, 4)))
    pipeline = {"schedule": "interleaved-1f1b" if chunks > 1 else "1f1b", "virtual_stages": chunks}
    return _plan(layout, sharding=sharding, pipeline=pipeline)


def _devices(plan):
    return prod(getattr(plan.layout, axis) for axis in MESH_AXES)


@given(plan=plans())
@settings(max_examples=20)
def test_a_step_keeps_the_devices_and_is_what_its_settings_say(plan):
    devices = _devices(plan)
    for step in steps(plan, devices, OURS):
        assert _devices(step.plan) == devices
        same = apply_overrides(plan, step.settings, devices)
        assert same.layout.model_copy(update={"sequence_parallel": None}) == step.plan.layout.model_copy(
            update={"sequence_parallel": None}
        )
        assert (same.sharding, same.recompute, same.pipeline) == (
            step.plan.sharding,
            step.plan.recompute,
            step.plan.pipeline,
        )


@given(plan=plans())
@settings(max_examples=20)
def test_no_plan_comes_twice_nor_the_plan_itself(plan):
    found = [step.plan for step in steps(plan, _devices(plan), OURS)]
    assert len(set(found)) == len(found)
    assert plan not in found


@given(plan=plans())
@settings(max_examples=20)
def test_moves_say_what_goes_up_and_what_goes_down(plan):
    before = plan.layout
    for step in steps(plan, _devices(plan), OURS):
        after = step.plan.layout
        for move in step.moves:
            axis, _, way = move.partition(" ")
            if axis in ("tp", "cp", "pp", "ep", "etp") and way in ("up", "down"):
                assert (getattr(after, axis) > getattr(before, axis)) == (way == "up")
            elif axis == "dp":
                replicas = after.dp_replicate * after.dp_shard
                assert (replicas > before.dp_replicate * before.dp_shard) == (way == "up")


def test_every_pair_of_axes_gives_and_takes():
    plan = _plan({"pp": 2, "dp_shard": 2, "cp": 2, "tp": 2}, sharding="zero1")
    pairs = {step.moves for step in steps(plan, 16, MEGATRON) if len(step.moves) == 2}
    assert len(pairs) == 12


def test_sequence_parallelism_follows_tp_where_it_has_its_default():
    plan = _plan({"dp_shard": 8, "sequence_parallel": False}, sharding="zero1")
    (wider,) = [step.plan for step in steps(plan, 8, MEGATRON) if step.moves == ("tp up", "dp down")]
    assert (wider.layout.tp, wider.layout.sequence_parallel) == (2, None)


def test_replicas_give_where_shards_can_not():
    plan = _plan({"dp_replicate": 4, "dp_shard": 1, "cp": 2}, sharding="zero1")
    (wider,) = [step.plan for step in steps(plan, 8, MEGATRON) if step.moves == ("tp up", "dp down")]
    assert (wider.layout.tp, wider.layout.dp_replicate, wider.layout.dp_shard) == (2, 2, 1)


def test_other_schedules_come_with_the_stages_and_knobs_that_they_can_have():
    plan = _plan({"pp": 4, "dp_shard": 2}, sharding="zero1")
    found = {str(step.plan.pipeline.choice): step.plan for step in schedule_steps(plan, 8, OURS)}
    assert "1f1b" not in found
    assert {name.partition(" ")[0] for name in found} == set(OURS.schedules) - {"1f1b"}
    assert "zero-bubble (memory limit 0.5)" in found
    for other in found.values():
        assert other.pipeline.choice.kind.allows(other.pipeline.virtual_stages)


def test_without_a_pipeline_there_is_one_schedule():
    assert not list(schedule_steps(_plan({"dp_shard": 8}, sharding="zero1"), 8, OURS))


@pytest.mark.parametrize(("number", "factor"), [(2, 2), (9, 3), (7, 7), (10, 2), (15, 3)])
def test_smallest_factors(number, factor):
    assert smallest_factor(number) == factor
