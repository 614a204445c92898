"""Neighbours of a plan in full keep its stages and its ranks, and differ inside a stage."""

from math import prod

import pytest

from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.forms.conversion import expand
from meshwright.plans.resolve import resolve
from meshwright.search.nearby.diverse_subset import coordinates
from meshwright.search.nearby.long_plan_neighbours import neighbours

PLAN = """plan: 1
model: MODEL
cluster: h100-sxm-80gb x 64
workload: {seq_len: 4096, global_batch: 64}
layout: {pp: 4, DP, tp: 2, cp: 2}
sharding: SHARDING
pipeline: {micro_batch: 2}
"""
CASES = [
    ("llama-3.1-8b", "dp_shard: 4", "zero1"),
    ("llama-3.1-8b", "dp_replicate: 4", "none"),
    ("qwen3-30b-a3b", "dp_shard: 2, dp_replicate: 2, ep: 4", "zero1"),
]


def plan_of(model, dp, sharding):
    resolved = resolve(
        parse_plan(PLAN.replace("MODEL", model).replace("DP", dp).replace("SHARDING", sharding))
    )
    return expand(resolved.short, resolved.setting.model.architecture)


def ranks(plan):
    (layout,) = plan.layouts.values()
    return prod(layout.grid.model_dump().values())


@pytest.mark.parametrize("case", CASES)
def test_they_are_as_large_and_keep_what_the_plan_writes_out(case):
    plan = plan_of(*case)
    found = list(neighbours(plan))
    points = {coordinates(near) for near in found}
    assert len(points) == len(found) > 10
    assert coordinates(plan) not in points
    kept = plan.pipeline.model_dump(exclude={"micro_batch"})
    for near in found:
        assert ranks(near) == ranks(plan)
        assert near.pipeline.model_dump(exclude={"micro_batch"}) == kept
        assert (near.layers, near.states) == (plan.layers, plan.states)
        (layout,) = near.layouts.values()
        assert layout.sequence_parallel == (layout.grid.tp > 1)
        if layout.experts:
            mesh = layout.experts
            assert mesh.ep * mesh.etp * mesh.edp_shard * mesh.edp_replicate == ranks(plan)


def test_without_sharding_the_replicas_take_up_the_change():
    for near in neighbours(plan_of(*CASES[1])):
        (layout,) = near.layouts.values()
        assert layout.grid.dp_shard == 1
        assert layout.grid.dp_replicate * layout.grid.tp * layout.grid.cp == 16


def test_degrees_that_have_no_half_are_only_doubled():
    text = PLAN.replace("MODEL", "llama-3.1-8b").replace("DP", "dp_shard: 8").replace("cp: 2", "cp: 1")
    plan = parse_plan(text.replace("SHARDING", "zero1"))
    found = list(neighbours(resolve(plan).long))
    assert {coordinates(near)[2] for near in found} == {1, 2}
    assert {coordinates(near)[0] for near in found} == {1, 2, 4}
