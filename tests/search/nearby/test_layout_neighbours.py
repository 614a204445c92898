"""Neighbours of plans with several layouts."""

from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.layers.plan_of_layout import plan_of_layout
from meshwright.plans.resolve import resolve
from meshwright.search.nearby.long_plan_neighbours import neighbours

PLAN = """
plan: 1
model: llama-3.1-8b
cluster: h100-sxm-80gb x 8
stack: meshwright
workload: {task: pretrain, seq_len: 4096, global_batch: 64, precision: bf16}
layouts:
  a: {grid: {dp_replicate: 4, tp: 2}, order: [tp, cp, dp_shard, dp_replicate, pp], sequence_parallel: true}
  b: {grid: {dp_replicate: 8}, order: [tp, cp, dp_shard, dp_replicate, pp]}
layers: {embed: {layout: a}, 0..19: {layout: a}, 20..31: {layout: b, recompute: full}, head: {layout: b}}
pipeline: {placement: [0], micro_batch: 1, schedule: {name: gpipe}}
"""


def test_each_layout_everywhere_and_each_range_otherwise():
    plan = resolve(parse_plan(PLAN)).long
    found = list(neighbours(plan))
    assert plan not in found
    assert [other for other in found if len(other.layouts) == 1] == [
        plan_of_layout(plan, "a"),
        plan_of_layout(plan, "b"),
    ]
    changes = [
        (key, rule.layout, rule.recompute)
        for other in found
        if len(other.layouts) > 1
        for key, rule in other.layers.items()
        if rule != plan.layers[key]
    ]
    assert ("20..31", "a", "full") in changes
    assert ("20..31", "b", "none") in changes
    assert ("0..19", "a", "selective") in changes
    assert ("head", "a", "none") in changes
    assert len(changes) == len(set(changes)) == 4 + 2 * 2
    assert {other.pipeline.micro_batch for other in found} == {1, 2}


def test_most_of_them_are_legal():
    plan = resolve(parse_plan(PLAN)).long
    for other in neighbours(plan):
        if other.pipeline.micro_batch == 1 or len(other.layouts) == 1:
            resolve(other)
