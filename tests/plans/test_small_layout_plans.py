"""Small plans of plans with several layouts: legal, on few ranks, with every feature and every change of layout."""

from itertools import groupby
from math import prod

import pytest

from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.layers.layout_by_layer import format_layout, layouts_by_block
from meshwright.plans.resolve import resolve
from meshwright.plans.rules.stack_limits.meshwright import unsupported_by_runtime
from meshwright.plans.shrink.small_layout_plans import small_layout_plans
from meshwright.stack.load import load_stack
from meshwright.stack.stack import OWN_STACK
from meshwright.verbs.verify import program_of

HEAD = """
plan: 1
cluster: h100-sxm-80gb x {devices}
stack: meshwright
workload: {{task: pretrain, seq_len: 4096, global_batch: 256, precision: bf16}}
"""
AXES = "order: [tp, cp, dp_shard, dp_replicate, pp]"
CUT = "{optimizer: [dp_shard, cp]}"
CUT_ALL = "{optimizer: [dp_shard, cp], gradient: [dp_shard, cp], parameter: [dp_shard, cp]}"
PIPELINE = "pipeline: {{placement: {placement}, micro_batch: 1, schedule: {{name: {schedule}}}}}"
PLANS = {
    "two layouts of a pipeline": (
        16,
        f"""
model: llama-3.1-8b
layouts:
  a: {{grid: {{dp_shard: 4, tp: 2}}, {AXES}, sequence_parallel: true, states: {CUT}}}
  b: {{grid: {{dp_shard: 8}}, {AXES}, states: {CUT_ALL}, gather: per-layer}}
layers: {{embed: {{layout: a}}, 0..19: {{layout: a}}, 20..31: {{layout: b, recompute: full}}, head: {{layout: b}}}}
{PIPELINE.format(placement=[0, 1], schedule="1f1b")}
""",
    ),
    "uneven shares of the batch": (
        16,
        f"""
model: llama-3.1-8b
layouts:
  a: {{grid: {{dp_shard: 4, tp: 2}}, {AXES}, sequence_parallel: true, batch_share: [1, 3, 2, 2], states: {CUT}}}
  b: {{grid: {{dp_shard: 8}}, {AXES}, states: {CUT_ALL}, gather: per-layer}}
layers: {{embed: {{layout: a}}, 0..19: {{layout: a}}, 20..31: {{layout: b}}, head: {{layout: b}}}}
{PIPELINE.format(placement=[0, 1], schedule="1f1b")}
""",
    ),
    "three layouts on one stage": (
        32,
        f"""
model: qwen3-8b
layouts:
  a: {{grid: {{dp_shard: 8, cp: 4}}, {AXES}, context: ring, states: {CUT}}}
  b: {{grid: {{dp_replicate: 2, dp_shard: 4, tp: 4}}, {AXES}, sequence_parallel: true, states: {CUT}}}
  c: {{grid: {{dp_replicate: 32}}, {AXES}}}
layers: {{embed: {{layout: a}}, 0..9: {{layout: a}}, 10..19: {{layout: b}}, 20..35: {{layout: c}}, head: {{layout: c}}}}
{PIPELINE.format(placement=[0], schedule="gpipe")}
""",
    ),
    "chunks of experts": (
        32,
        f"""
model: mixtral-8x7b
layouts:
  a: {{grid: {{dp_shard: 8}}, experts: {{ep: 4, edp_shard: 2}}, {AXES}, states: {CUT}}}
  b: {{grid: {{dp_shard: 8}}, experts: {{ep: 2, etp: 2, edp_shard: 2}}, {AXES}, states: {CUT_ALL}}}
layers: {{embed: {{layout: a}}, 0..11: {{layout: a}}, 12..31: {{layout: b}}, head: {{layout: b}}}}
{PIPELINE.format(placement=[0, 1, 2, 3, 0, 1, 2, 3], schedule="interleaved-1f1b")}
""",
    ),
}


@pytest.fixture(params=list(PLANS))
def shrunk(request):
    devices, text = PLANS[request.param]
    resolved = resolve(parse_plan(HEAD.format(devices=devices) + text), stack_binds=True)
    return resolved, small_layout_plans(resolved.long, resolved.setting.model, 8)


def test_every_small_plan_is_legal_and_runs(shrunk):
    _, found = shrunk
    stack = load_stack(OWN_STACK)
    for small in found.plans:
        assert small.ranks <= 8
        assert len({prod(of.grid.model_dump().values()) for of in small.long.layouts.values()}) == 1
        assert unsupported_by_runtime(small.long, small.model, proof=True) == []
        assert program_of(small, stack).parts.ranks == small.ranks


def test_every_feature_is_in_a_plan_and_every_change_of_layout_in_all(shrunk):
    resolved, found = shrunk
    assert set().union(*(small.features for small in found.plans)) == set(found.features)

    def runs(plan, layers):
        return [name for name, _ in groupby(layouts_by_block(plan, layers))]

    whole = runs(resolved.long, resolved.setting.model.architecture.layers)
    for small in found.plans:
        assert runs(small.long, small.model.architecture.layers) == whole
        assert ", " in small.text


def test_a_feature_of_a_layout_is_there(shrunk):
    _, found = shrunk
    for small in found.plans:
        for feature in small.features:
            name, _, axis = feature.partition(" ")
            layout = small.long.layouts.get(name)
            if layout is not None and axis in layout.grid.model_dump():
                assert getattr(layout.grid, axis) > 1


def test_the_text_of_layouts_names_the_degrees_of_experts():
    devices, text = PLANS["chunks of experts"]
    plan = parse_plan(HEAD.format(devices=devices) + text)
    assert format_layout(plan, "a") == "dp_shard 8 ep 4 zero1"
    assert format_layout(plan, "b") == "dp_shard 8 ep 2 etp 2 zero3"
