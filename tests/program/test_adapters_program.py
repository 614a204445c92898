"""What adapters and quantised bases change in a Program: states, exchanges, kept activations."""

import pytest

from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve
from meshwright.program.lowering.lower_plan import lower
from meshwright.program.pass_items import Compute, exchanges_of
from meshwright.simulate.memory_ledger import rank_ledger

LAYERS, HIDDEN, WIDTH, KV, VOCAB = 16, 2048, 8192, 512, 128256
MATRICES = 2 * HIDDEN * (HIDDEN + KV) + 3 * HIDDEN * WIDTH


def lowered(adapter, stack="generic", optimizer="adamw", **keys):
    workload = {"seq_len": 512, "global_batch": 16, "optimizer": optimizer}
    if adapter is not None:
        workload |= {"task": "lora", "adapter": adapter}
    plan = ShortPlan.model_validate(
        {
            "plan": 1,
            "model": "llama-3.2-1b",
            "cluster": "h100-sxm-80gb x 8",
            "workload": workload,
            "stack": stack,
            "layout": {"dp_replicate": 8},
        }
        | keys
    )
    resolved = resolve(plan)
    setting = resolved.setting
    program = lower(resolved.long, setting.model, setting.cluster, setting.workload, setting.stack)
    return program, resolved.long.sharding, setting.cluster


def adapter_elements(rank):
    pairs = [(HIDDEN, HIDDEN), (HIDDEN, KV), (HIDDEN, KV), (HIDDEN, HIDDEN), *[(HIDDEN, WIDTH)] * 3]
    return LAYERS * rank * sum(a + b for a, b in pairs)


@pytest.mark.parametrize(
    ("base", "each"), [(None, 2.0), ("int8", 1.0 + 4 / HIDDEN), ("nf4", 0.5 + 1 / 64 + 4 / (64 * 256))]
)
def test_a_device_holds_the_base_in_its_type_and_states_of_adapters_only(base, each):
    program, _, cluster = lowered({"rank": 16, "base": base})
    held = {kind: program.held_bytes(0, kind) for kind in ("parameter", "gradient", "optimizer")}
    trained = adapter_elements(16)
    norms = (2 * LAYERS + 1) * HIDDEN
    others = 2 * (VOCAB * HIDDEN + norms + trained)
    assert held["parameter"] == pytest.approx(LAYERS * MATRICES * each + others, rel=2e-3)
    assert held["gradient"] == program.stack.gradient_bytes * trained
    assert held["optimizer"] == program.stack.optimizer_bytes * trained
    assert rank_ledger(program, 0, cluster)["parameters"] == held["parameter"]


def test_a_gather_moves_the_quantised_bytes():
    keys = {"layout": {"dp_shard": 8}, "sharding": "zero3"}
    sizes = {}
    for base in (None, "nf4"):
        program, _, _ = lowered({"rank": 16, "base": base}, **keys)
        gathered = [
            c.logical_bytes
            for segment in program.bodies[0, "F"]
            for c in segment.overlapped
            for _ in range(segment.count)
            if c.kind == "all-gather"
        ]
        sizes[base] = sum(gathered)
    saved = LAYERS * MATRICES * (2 - 0.5 - 1 / 64 - 4 / (64 * 256))
    assert sizes[None] - sizes["nf4"] == pytest.approx(saved, rel=1e-3)


def test_only_adapters_have_weight_gradients_and_reductions():
    program, _, _ = lowered({"rank": 16, "targets": ("q", "down")})
    block = program.stages[0].blocks[1]
    computed = [item.operator.name for item in program.block_items[block, "W"] if isinstance(item, Compute)]
    assert computed == ["ffn_down.adapter", "qkv.adapter"]
    (reduced,) = program.collectives[0, "REDUCE"]
    trained = LAYERS * 16 * (2 * HIDDEN + HIDDEN + WIDTH)
    assert reduced.logical_bytes == program.stack.gradient_communication_bytes * trained


def test_tensor_parallelism_gathers_the_input_again_for_the_adapter_that_needs_it():
    program, _, _ = lowered({"targets": ("v",)}, stack="megatron-bridge", layout={"tp": 8})
    block = program.stages[0].blocks[1]
    again = [
        item.compute[0].operator.name
        for item in program.block_items[block, "I"]
        if exchanges_of(item) and hasattr(item, "compute")
    ]
    assert again == ["qkv.adapter"]


def test_products_without_adapters_keep_no_input():
    every, _, _ = lowered({})
    some, _, _ = lowered({"targets": ("q",)})
    tokens = 512
    kept = 2 * tokens * (HIDDEN + HIDDEN + WIDTH)
    inner = 2 * tokens * 32 * 6
    difference = every.activation_bytes[0] - some.activation_bytes[0]
    assert difference == LAYERS * (kept + inner)


def test_adapters_of_each_rank_are_neither_cut_nor_reduced_but_gathered_after_the_step():
    keys = {"layout": {"dp_replicate": 2, "dp_shard": 2, "cp": 2}, "sharding": "zero3"}
    program, _, _ = lowered({"form": "hd-pissa", "rank": 4}, **keys)
    trained = adapter_elements(4)
    assert program.held_bytes(0, "optimizer") == program.stack.optimizer_bytes * trained
    (gathered,) = program.collectives[0, "STEP"]
    assert (gathered.axes, gathered.kind) == (("dp_shard", "dp_replicate"), "all-gather")
    assert gathered.logical_bytes == 4 * 2 * 4 * trained
    reduced = [c for segment in program.bodies[0, "B"] for c in segment.overlapped if c.kind != "all-gather"]
    assert {c.axes for c in reduced} == {("cp",)}


def test_a_plan_without_adapters_has_no_new_rows():
    program, _, _ = lowered(None)
    assert all(row.packed_bytes is None for row in program.states)
    assert not any(row.name.endswith((".base", ".own")) for row in program.states)
