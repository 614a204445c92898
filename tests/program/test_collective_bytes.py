"""Bytes of a Program's collectives against formulas by hand."""

from collections import Counter

import pytest
from lowered_programs import lowered, short_plan
from wire_factors import WIRE_FACTOR

from meshwright.program.pass_items import Collective, Compute
from meshwright.program.program import Program

S, B, H, FFN, KV = 128, 2, 64, 192, 32
LAYER = 1


def of_items(items):
    for item in items:
        if isinstance(item, Collective):
            yield item
        elif not isinstance(item, Compute):
            yield from item.overlapped


def sent(program: Program, collectives) -> Counter:
    """Bytes that one rank sends, by the axes of the group."""
    total = Counter()
    for c in collectives:
        n = program.group_size(c.axes)
        total[c.axes] += WIRE_FACTOR[c.kind] * (n - 1) / n * float(c.logical_bytes)
    return total


def layer_bytes(program: Program, block=LAYER, kinds=("F", "B")) -> Counter:
    """What one layer's passes exchange for one micro-batch."""
    return sum((sent(program, of_items(program.block_items[block, kind])) for kind in kinds), Counter())


def step_bytes(program: Program) -> Counter:
    """What one rank of every pipeline rank sends in a step along the data-parallel axes."""
    total = Counter()
    for actions in program.lists:
        for action in actions:
            for segment in program.bodies.get((action.stage, action.kind), ()):
                for collective in segment.overlapped * segment.count:
                    total += sent(program, [collective])
            total += sent(program, program.collectives.get((action.stage, action.kind), ()))
    return total


def plan(layout, **keys):
    workload = {"seq_len": S, "global_batch": keys.pop("global_batch", 32)}
    pipeline = {"micro_batch": B} | keys.pop("pipeline", {})
    return short_plan(keys.pop("name", "dense"), layout, workload=workload, pipeline=pipeline, **keys)


@pytest.mark.parametrize("t", [2, 4])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_tensor_parallelism_costs_four_all_reduces_a_layer(t, sequence_parallel):
    """Megatron: two forward, two backward; sequence parallelism splits them and sends the same bytes."""
    layout = {"tp": t, "sequence_parallel": sequence_parallel}
    program = lowered(plan(layout), tp_regathers_input=False).program
    all_reduce = 2 * (t - 1) / t * 2 * S * B * H
    assert layer_bytes(program)[("tp",)] == pytest.approx(4 * all_reduce)
    assert layer_bytes(program, kinds=("F",))[("tp",)] == pytest.approx(2 * all_reduce)


@pytest.mark.parametrize("t", [2, 4])
def test_gathering_inputs_again_costs_half_an_all_reduce_each(t):
    program = lowered(plan({"tp": t, "sequence_parallel": True})).program
    assert layer_bytes(program)[("tp",)] == pytest.approx((4 + 2 / 2) * 2 * (t - 1) / t * 2 * S * B * H)


def test_kinds_of_collectives_with_and_without_sequence_parallelism():
    whole, cut = (
        lowered(plan({"tp": 2, "sequence_parallel": sp}), tp_regathers_input=False).program
        for sp in (False, True)
    )
    for program, forward in ((whole, ["all-reduce"] * 2), (cut, ["all-gather", "reduce-scatter"] * 2)):
        assert [c.kind for c in of_items(program.block_items[LAYER, "F"]) if c.axes == ("tp",)] == forward


def test_full_recomputation_repeats_the_forward_collectives():
    none, full = (
        lowered(plan({"tp": 2, "sequence_parallel": False}, recompute=r)).program for r in ("none", "full")
    )
    assert layer_bytes(full)[("tp",)] == pytest.approx(1.5 * layer_bytes(none)[("tp",)])


def test_selective_recomputation_repeats_no_collectives():
    none, selective = (lowered(plan({"tp": 2}, recompute=r)).program for r in ("none", "selective"))
    assert layer_bytes(selective) == layer_bytes(none)


def test_sharded_parameters_cost_one_and_a_half_times_replicated_ones():
    """FSDP: two gathers and a reduce-scatter; DDP: an all-reduce (two passes). Equal wire sizes, one micro-batch."""
    replicated = lowered(plan({"dp_replicate": 8}, global_batch=16), gradient_communication_bytes=2).program
    sharded = lowered(
        plan({"dp_shard": 8}, sharding="zero3", gather="per-layer", global_batch=16),
        gradient_communication_bytes=2,
    ).program
    groups = [axes for axes in step_bytes(replicated) if axes != ("world",)]
    all_reduce = sum(step_bytes(replicated)[axes] for axes in groups)
    fully_sharded = step_bytes(sharded)[("cp", "dp_shard")]
    assert fully_sharded == 1.5 * all_reduce
    assert all_reduce == 2 * 7 / 8 * 2 * sharded.parts.only.shape.shard * sharded.held_elements(
        0, "parameter"
    )


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_gathering_once_a_step_does_not_grow_with_micro_batches(micro_batches):
    program = lowered(
        plan({"dp_shard": 4}, sharding="zero3", gather="per-step", global_batch=4 * B * micro_batches),
        gradient_communication_bytes=2,
    ).program
    parameters = 4 * program.held_elements(0, "parameter")
    assert step_bytes(program)[("cp", "dp_shard")] == (1 + 1) * 3 / 4 * 2 * parameters


def test_gathering_per_layer_grows_with_micro_batches():
    one, four = (
        step_bytes(lowered(plan({"dp_shard": 4}, sharding="zero3", global_batch=4 * B * m)).program)
        for m in (1, 4)
    )
    assert four[("cp", "dp_shard")] == 4 * one[("cp", "dp_shard")]


def test_hybrid_sharding_reduces_shards_over_replicas():
    program = lowered(
        plan({"dp_shard": 4, "dp_replicate": 2}, sharding="zero2"), gradient_communication_bytes=2
    ).program
    shard = program.held_elements(0, "gradient")
    assert step_bytes(program)[("dp_replicate",)] == pytest.approx(2 * 1 / 2 * 2 * shard)


@pytest.mark.parametrize(("ep", "etp"), [(2, 1), (4, 1), (8, 1), (4, 2)])
def test_experts_cost_four_all_to_alls_a_layer(ep, etp):
    """Dispatch and combine, forward and backward: a rank sends (ep−1)/ep of its k rows a token."""
    layout = {"dp_shard": 8, "ep": ep, "etp": etp}
    program = lowered(plan(layout, name="moe", sharding="zero1")).program
    k = 2
    volume = layer_bytes(program, block=2)
    assert volume[("ep",)] == pytest.approx(4 * (ep - 1) / ep * 2 * k * S * B * H)
    gathered = 2 * k * S * B * H * etp
    assert volume[("etp",)] == pytest.approx(4 * (etp - 1) / etp * gathered)


def test_sequence_parallel_ranks_dispatch_their_own_tokens():
    program = lowered(plan({"dp_shard": 4, "tp": 2, "ep": 8}, name="moe", sharding="zero1")).program
    assert layer_bytes(program, block=2)[("ep",)] == pytest.approx(4 * 7 / 8 * 2 * 2 * S * B * H / 2)


@pytest.mark.parametrize("cp", [2, 4])
@pytest.mark.parametrize("tp", [1, 2])
def test_ring_attention_sends_keys_and_values_round(cp, tp):
    """cp − 1 steps of a rank's own keys and values forward; backward their gradients travel with them."""
    program = lowered(plan({"cp": cp, "tp": tp})).program
    forward = (cp - 1) * 2 * B * (S / cp) * 2 * KV / tp
    assert layer_bytes(program, kinds=("F",))[("cp",)] == pytest.approx(forward)
    assert layer_bytes(program, kinds=("B",))[("cp",)] == pytest.approx(2 * forward)


@pytest.mark.parametrize(
    ("layout", "partitioned", "cut"),
    [
        ({"pp": 4}, True, 1),
        ({"pp": 4, "tp": 2, "sequence_parallel": False}, True, 2),
        ({"pp": 4, "tp": 2, "sequence_parallel": False}, False, 1),
        ({"pp": 4, "tp": 2, "sequence_parallel": True}, False, 2),
        ({"pp": 4, "cp": 2}, True, 2),
    ],
)
def test_a_pipeline_message_is_one_micro_batchs_hidden_states(layout, partitioned, cut):
    program = lowered(plan(layout, sharding="zero1"), partitioned_p2p=partitioned).program
    assert program.parts.only.message_bytes == 2 * S * B * H / cut
    messages = list(program.edges())
    assert len(messages) == 2 * (4 - 1) * program.micro_batches
    assert sum(edge.message_bytes for edge in messages) == len(messages) * 2 * S * B * H / cut


def test_interleaving_sends_more_messages():
    plain = lowered(plan({"pp": 2})).program
    chunked = lowered(plan({"pp": 2}, pipeline={"schedule": "interleaved-1f1b", "virtual_stages": 4})).program
    assert len(list(chunked.edges())) == (2 * 4 - 1) / (2 - 1) * len(list(plain.edges()))


def test_a_tied_table_is_reduced_without_what_is_not_shared():
    """GPT-2's learned positions belong to the embedding alone."""
    program = lowered(plan({"pp": 2, "dp_replicate": 2}, name="gpt"), gradient_communication_bytes=4).program
    (collective,) = program.collectives[None, "REDUCE_TIED"]
    assert collective.logical_bytes == 4 * 1024 * H  # 1000 words padded to 8 · 128


@pytest.mark.parametrize("t", [2, 4])
def test_the_loss_exchanges_three_statistics_a_token(t):
    program = lowered(plan({"tp": t})).program
    head = len(program.blocks) - 1
    statistics = [c for c in of_items(program.block_items[head, "F"]) if c.kind == "all-reduce"]
    assert [float(c.logical_bytes) for c in statistics] == [4 * S * B, 2 * 4 * S * B]


def test_a_loss_on_whole_logits_gathers_the_padded_vocabulary():
    program = lowered(plan({"tp": 2, "sequence_parallel": False}), loss_vocab_parallel=False).program
    head = len(program.blocks) - 1
    (logits,) = [c for c in of_items(program.block_items[head, "F"]) if c.kind == "all-gather"]
    assert logits.logical_bytes == 2 * S * B * 1024


def test_gradients_of_experts_are_reduced_over_the_experts_mesh():
    """ep 2 of 8 ranks: edp 4, of which dp_replicate takes 2; a reduce-scatter, then an all-reduce of shards."""
    layout = {"dp_shard": 4, "dp_replicate": 2, "ep": 2}
    program = lowered(plan(layout, name="moe", sharding="zero2"), gradient_communication_bytes=4).program
    assert (program.group_size(("edp_shard",)), program.group_size(("edp_replicate",))) == (2, 2)
    layers, experts, width = 7, 8, 32
    held = layers * experts // 2 * 3 * H * width
    volume = step_bytes(program)
    gathered = 2 * held / 2
    assert volume[("edp_shard",)] == 4 * held / 2 + gathered
    assert volume[("edp_replicate",)] == 2 * 4 * (held / 2) / 2
