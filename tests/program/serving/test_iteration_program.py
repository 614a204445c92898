"""A serving replica lowered to a forward-only Program: its stages, messages, exchanges and states."""

from collections import Counter

import pytest

from meshwright.model.load import load_model
from meshwright.plans.serving.number_formats import NumberFormats
from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.plans.serving.serving_plan import Batching, Pool
from meshwright.program.pass_items import Collective
from meshwright.program.pipeline_messages.nccl_deadlock_check import check_messages
from meshwright.program.serving.iteration_program import Iterations, Replica, iteration_program
from meshwright.program.serving.iteration_shape import IterationLoad
from meshwright.program.serving.kv_bytes import sequence_cache_bytes
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.stage_layers import served_layers
from meshwright.program.serving.storage_formats import StorageFormats
from meshwright.program.serving.weight_bytes import rank_weight_bytes

MIXED = IterationLoad(prompt_tokens=512.0, prompt_positions=256.0, prompts=1.0, sequences=8.0, context=900.0)


def program_of(name, load=MIXED, formats=None, count=1, caches=None, block=16, **degrees):
    formats = formats or StorageFormats()
    replica = Replica(
        model=load_model(name), degrees=ReplicaDegrees(**degrees), formats=formats, block_tokens=block
    )
    return iteration_program(replica, Iterations(load=load, caches=caches or {}, count=count))


def test_a_pool_of_a_plan_has_a_replica_for_each_phase():
    layouts = {"prefill": ReplicaLayout(tp=8, ep=8), "decode": ReplicaLayout(attention_dp=8, ep=8)}
    pool = Pool("all", "serve", 2, layouts, Batching(block_tokens=32), NumberFormats("fp8", "fp8"))
    model = load_model("deepseek-v3")
    replica = Replica.of_pool(model, pool, "decode")
    assert (replica.degrees, replica.block_tokens) == (ReplicaDegrees(attention_dp=8, ep=8), 32)
    assert (replica.formats.weights, replica.formats.kv) == ("fp8-block", "fp8")
    assert Replica.of_pool(model, pool, "prefill").degrees == ReplicaDegrees(tp=8, ep=8)


def exchanges(program):
    """The collectives of one iteration by operator, kind and axes, with how many layers have them."""
    found = Counter()
    for stage in program.stages:
        for block in stage.blocks:
            for item in program.block_items[block, "F"]:
                if isinstance(item, Collective):
                    found[item.what, item.kind, item.axes] += 1
    return found


def test_stages_have_every_served_layer_once_between_embedding_and_head():
    program, model = program_of("deepseek-v3", pp=4, tp=2, etp=2), load_model("deepseek-v3")
    blocks = [block for stage in program.stages for block in stage.blocks]
    assert blocks == [model.chain[0][0], *served_layers(model), model.chain[-1][0]]
    assert [len(stage.layers) for stage in program.stages] == [16, 15, 15, 15]
    assert program.parts.ranks == 8


@pytest.mark.parametrize(("pp", "count"), [(1, 1), (1, 3), (2, 1), (4, 3)])
def test_each_micro_batch_passes_all_stages_in_every_iteration_without_a_deadlock(pp, count):
    program = program_of("llama-3.1-8b", pp=pp, count=count)
    passes = Counter(action for actions in program.lists for action in actions if action.kind == "F")
    assert set(passes.values()) == {1}
    assert len(passes) == pp * count * pp
    placement = [stage.rank for stage in program.stages]
    assert not list(check_messages(program.lists, placement, ways=program.ways))
    sent = sum(action.kind == "SEND_F" for actions in program.lists for action in actions)
    assert sent == (0 if pp == 1 else pp * (pp * count - 1))


def test_tp_sums_up_after_attention_and_feed_forward_and_gathers_the_logits():
    program = program_of("llama-3.1-8b", tp=4)
    kinds = Counter()
    for (_, kind, axes), layers in exchanges(program).items():
        kinds[kind, axes] += layers
    assert kinds == {("all-reduce", ("tp",)): 2 * 32 + 1, ("all-gather", ("tp",)): 1}
    logits = next(
        i for i in program.block_items[2, "F"] if isinstance(i, Collective) and i.kind == "all-gather"
    )
    assert logits.logical_bytes == 2 * 128256 * 9  # eight sequences and the end of a prompt


def test_experts_of_one_group_of_rows_are_summed_with_shared_ones_over_tp():
    found = exchanges(program_of("deepseek-v3", tp=8, ep=8))
    assert found["combine", "all-reduce", ("tp",)] == 58
    assert not any(what in ("dispatch", "leave_shared") for what, _, _ in found)


def test_attention_dp_gathers_rows_or_exchanges_copies_and_sums_shared_experts_by_themselves():
    program = program_of("deepseek-v3", attention_dp=4, tp=2, ep=8)
    found, every = exchanges(program), ("tp", "cp", "dp_replicate")
    assert found["dispatch", "all-gather", every] == found["combine", "reduce-scatter", every] == 58
    assert found["leave_shared", "all-reduce", ("tp",)] == 58
    assert ("combine", "all-reduce", ("tp",)) not in found
    gathers = [
        item
        for items in program.block_items.values()
        for item in items
        if isinstance(item, Collective) and item.what == "dispatch"
    ]
    for item in gathers:
        assert [(other.kind, other.axes) for other in item.alternatives] == [("all-to-all", ("ep",))]
        assert program.group_size(item.axes) == program.group_size(("ep",)) == 8
        assert item.logical_bytes == 2 * 7168 * (512 + 8) * 4


def test_cp_gathers_keys_and_values_of_prompts_alone():
    decode = IterationLoad(sequences=8.0, context=900.0)
    assert exchanges(program_of("llama-3.1-8b", cp=2))["attention", "all-gather", ("cp",)] == 32
    assert not exchanges(program_of("llama-3.1-8b", decode, cp=2))


@pytest.mark.parametrize("formats", [StorageFormats(), StorageFormats(weights="fp8", kv="fp4")])
@pytest.mark.parametrize(
    ("name", "degrees"),
    [
        ("llama-3.1-70b", {"tp": 4, "pp": 3}),
        ("deepseek-v3", {"attention_dp": 8, "ep": 8}),
        ("gpt-oss-120b", {"tp": 4, "cp": 2, "ep": 8}),
        ("minimax-text-01", {"tp": 8, "ep": 2, "etp": 4}),
        ("granite-4.0-h-micro", {"tp": 2, "pp": 2}),
        ("nemotron-3-nano-30b-a3b", {"tp": 2, "ep": 2}),
        ("gpt-j-6b", {"tp": 4}),
        ("gemma-3-12b", {"tp": 2}),
    ],
)
def test_the_state_table_has_the_bytes_of_weights_and_caches(name, degrees, formats):
    caches = {1000: 5, 77: 1, 40_000: 2}
    program = program_of(name, formats=formats, caches=caches, count=2, **degrees)
    model, of = load_model(name), ReplicaDegrees(**degrees)
    ranks = range(program.pipeline_ranks)
    cached = sum(
        count * sequence_cache_bytes(model, tokens, of, formats, 16) for tokens, count in caches.items()
    )
    assert max(program.held_bytes(rank, "cache") for rank in ranks) == cached
    assert max(program.held_bytes(rank, "parameter") for rank in ranks) == rank_weight_bytes(
        model, of, formats
    )


def test_rows_of_caches_name_the_axes_that_cut_them():
    program = program_of("deepseek-v3", caches={100: 1}, tp=4, cp=2, etp=8)
    assert {row.layout for row in program.states if row.kind == "cache"} == {("cp", "dp_replicate")}
    program = program_of("llama-3.1-8b", caches={100: 1}, tp=4, cp=2)
    (row,) = (row for row in program.states if row.kind == "cache")
    assert (row.layout, row.repeat, row.elements) == (("tp", "cp", "dp_replicate"), 32, 2 * 64)
