"""Plans of several layouts: one layout under two names costs what it costs under one, and changes cost their bytes."""

from dataclasses import replace

import pytest

from meshwright.cost.operators.pass_prices import reshard_seconds, total
from meshwright.cost.operators.price_plans import program_prices, setting_hardware_times
from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve, resolve_with
from meshwright.program.reshard import MovedBytes
from meshwright.simulate.plan_estimate import lower_and_simulate, simulated_estimate
from meshwright.simulate.simulator import simulate

LIMIT = 0.03
SHAPES = [
    {"layout": {"dp_replicate": 8}},
    {"layout": {"pp": 2, "dp_shard": 2, "tp": 2}, "sharding": "zero1"},
    {"layout": {"dp_shard": 4, "cp": 2}, "sharding": "zero2"},
    {"layout": {"dp_shard": 8}, "sharding": "zero3"},
    {"layout": {"dp_shard": 4, "tp": 2}, "sharding": "zero3", "gather": "per-micro-batch"},
    {"layout": {"pp": 2, "dp_shard": 4}, "sharding": "zero3", "gather": "per-step", "recompute": "full"},
    {"layout": {"pp": 4, "dp_replicate": 2}, "pipeline": {"schedule": "zb-h1"}},
    {"layout": {"pp": 2, "dp_shard": 4, "ep": 4}, "sharding": "zero1", "model": "mixtral-8x7b"},
    {"layout": {"pp": 2, "tp": 4}, "pipeline": {"schedule": "interleaved-1f1b", "virtual_stages": 2}},
]


def uniform(**keys):
    data = {
        "plan": 1,
        "model": "llama-3.1-8b",
        "cluster": "h200-sxm-141gb x 8",
        "stack": "meshwright",
        "workload": {"seq_len": 4096, "global_batch": 32},
    }
    return resolve(ShortPlan.model_validate(data | keys))


def under_two_names(resolved):
    """The same plan with a second name for the layout of its later layers."""
    long, layers = resolved.long, resolved.setting.model.architecture.layers
    (layout,) = long.layouts.values()
    rules = {key: rule.model_copy(update={"layout": "b"}) for key, rule in long.layers.items()}
    half = rules[f"0..{layers - 1}"]
    cut = layers // 2 + 1
    named = {
        "embed": rules["embed"].model_copy(update={"layout": "a"}),
        f"0..{cut - 1}": half.model_copy(update={"layout": "a"}),
        f"{cut}..{layers - 1}": half,
        "head": rules["head"],
    }
    plan = long.model_copy(update={"layouts": {"a": layout, "b": layout}, "layers": named})
    setting = resolved.setting
    return resolve_with(plan, setting.model, setting.cluster, setting.stack)


@pytest.mark.parametrize("keys", SHAPES, ids=str)
def test_a_second_name_changes_next_to_nothing(keys):
    one = uniform(**keys)
    two = under_two_names(one)
    usual, named = (simulated_estimate(of.long, of.setting) for of in (one, two))
    usual_s, named_s = (sum(of.parts.values()) for of in (usual, named))
    assert usual_s * (1 - 1e-9) <= named_s <= usual_s * (1 + LIMIT)
    for expected, ledger in zip(usual.ledgers, named.ledgers, strict=True):
        assert {**ledger, "buffers": 0} == {**expected, "buffers": 0}
        assert abs(ledger["buffers"] - expected["buffers"]) <= 2 * len(one.setting.model.blocks)


RANGED = """
plan: 1
model: llama-3.1-8b
cluster: h100-sxm-80gb x 16
stack: meshwright
workload: {task: pretrain, seq_len: 4096, global_batch: 16, precision: bf16}
layouts:
  a: {grid: {dp_replicate: 4, tp: 2}, order: [tp, cp, dp_shard, dp_replicate, pp], sequence_parallel: true}
  b: {grid: {dp_replicate: 8}, order: [tp, cp, dp_shard, dp_replicate, pp]}
layers: {embed: {layout: a}, 0..19: {layout: a}, 20..31: {layout: b, recompute: full}, head: {layout: b}}
pipeline: {placement: [0, 1], micro_batch: 1, schedule: {name: 1f1b}}
"""


def test_a_change_inside_a_stage_takes_the_time_of_its_busiest_rank():
    resolved = resolve(parse_plan(RANGED))
    program, simulation = lower_and_simulate(resolved.long, resolved.setting)
    (change,) = [segment.reshard for segment in program.bodies[1, "F"] if segment.reshard]
    forms = setting_hardware_times(resolved.setting)
    hidden, tokens = 4096, 4096
    half = 2 * hidden * tokens // 2
    # of two sequences, cut in halves over tp, a rank keeps half of the one that is its own, and gets the other half
    assert change.forward == change.backward == MovedBytes(8 * half, half, 0)
    prices = program_prices(program, resolved.setting)
    with_change = float(total(prices.body(program.bodies[1, "F"])))
    without = float(total(prices.body(tuple(s for s in program.bodies[1, "F"] if not s.reshard))))
    seconds = float(reshard_seconds(change.forward, forms))
    assert seconds == pytest.approx(float(forms.p2p(half, False)))
    assert with_change - without == pytest.approx(seconds)
    free = replace(
        program, bodies={k: tuple(s for s in b if not s.reshard) for k, b in program.bodies.items()}
    )
    assert simulate(free, prices).step_s < simulation.step_s


def test_messages_between_layouts_take_the_busiest_ranks_time():
    resolved = resolve(parse_plan(RANGED.replace("0..19", "0..15").replace("20..31", "16..31")))
    program, simulation = lower_and_simulate(resolved.long, resolved.setting)
    assert list(program.reshards) == [1]
    moved = program.reshards[1].forward
    sends = [r for r in simulation.ranks[0] if r.action.kind == "SEND_F"]
    forms = setting_hardware_times(resolved.setting)
    expected = max(float(forms.p2p(size, True)) for size in (moved.across,))
    assert all(record.end - record.start == pytest.approx(expected) for record in sends)
    assert {edge.message_bytes for edge in program.edges()} == {moved.total}
