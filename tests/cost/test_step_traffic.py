"""Logical bytes of a step against the counts that the papers on each kind of parallelism give."""

import numpy as np
from lattice_plans import CLUSTERS, SEQ_LEN, SPARSE, TIED, UNTIED, family
from step_traffic import array_traffic, program_traffic

from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.forms.short import ShortLayout, ShortPipeline
from meshwright.program.lowering.lower_plan import lower

CLUSTER = "h100-sxm-80gb x 8"
BATCH = CLUSTERS[CLUSTER]
NORM_BYTES = 8


def traffic(
    model, stack="megatron-core", sharding="none", gather=None, pipeline=None, recompute="none", **degrees
):
    """Traffic of one plan on eight devices, found twice."""
    chosen = family(model, CLUSTER, stack, 1, seed=0)
    setting = chosen.setting
    plan = chosen.header.model_copy(
        update={
            "layout": ShortLayout(**degrees),
            "sharding": sharding,
            "gather": gather,
            "pipeline": ShortPipeline(**(pipeline or {})),
            "recompute": recompute,
        }
    )
    program = lower(chosen.long(plan), setting.model, setting.cluster, setting.workload, setting.stack)
    found = program_traffic(program)
    arrays = array_traffic(from_shorts([plan]), setting)
    assert {name: value.tolist() for name, value in arrays.items()} == {n: [v] for n, v in found.items()}
    return found


def padded(vocab, tp=1):
    return int(np.ceil(vocab / (128 * tp)) * 128 * tp)


def parameters(arch, tied):
    """Elements of a model without biases, its table padded and counted once where it is tied."""
    table = padded(arch.vocab) * arch.hidden
    attention = arch.hidden * arch.head_dim * (2 * arch.heads + 2 * arch.kv_heads)
    layer = attention + 3 * arch.hidden * arch.intermediate + 2 * arch.hidden
    return arch.layers * layer + arch.hidden + table * (1 if tied else 2)


def test_replicas_all_reduce_every_gradient_once():
    found = traffic("tied", dp_replicate=8)
    assert found == {"tp": 0, "cp": 0, "ep": 0, "pp": 0, "dp": 4 * parameters(TIED, tied=True) + NORM_BYTES}


def test_zero1_reduces_gradients_and_gathers_parameters_once_a_step():
    found = traffic("tied", sharding="zero1", dp_shard=8)
    assert found["dp"] == (4 + 2) * parameters(TIED, tied=True) + NORM_BYTES


def test_fully_sharded_parameters_are_gathered_in_both_passes_of_every_micro_batch():
    found = traffic("tied", stack="torchtitan", sharding="zero3", dp_shard=8)
    gathered = (2 + 2 + 4) * (BATCH // 8)
    assert found["dp"] == gathered * parameters(TIED, tied=True) + NORM_BYTES


def test_torchtitan_reduces_every_micro_batch_unless_a_pipeline_runs():
    found = traffic("tied", stack="torchtitan", dp_replicate=8)
    assert found["dp"] == (BATCH // 8) * 4 * parameters(TIED, tied=True) + NORM_BYTES
    whole, cut = (
        traffic("untied", stack="torchtitan", pp=2, **keys)["dp"] - 2 * NORM_BYTES
        for keys in ({"dp_replicate": 4}, {"sharding": "zero3", "dp_shard": 4})
    )
    assert whole / 4 == cut / (2 + 4)


def test_a_unit_of_twice_the_micro_batches_exchanges_half_as_much():
    """Tang et al. 2024: once for each unit; 2V − 1 gathers for the V stages of a rank, and V reductions."""

    def exchanged(gather, unit=None):
        pipeline = {"schedule": {"name": "zeropp", "unit": unit}, "virtual_stages": 3}
        plan = {"stack": "meshwright", "sharding": "zero3", "pipeline": pipeline, "pp": 2, "dp_shard": 4}
        return traffic("untied", gather=gather, **plan)["dp"] - 2 * NORM_BYTES

    micro_batches = BATCH // 4
    once = exchanged("per-step")
    sizes = [2, 4, 8, 16]
    assert sizes[-1] == micro_batches
    found = [exchanged("per-unit", unit) for unit in sizes]
    assert [found[-1] * micro_batches // unit for unit in sizes] == found
    assert exchanged("per-unit") == found[0]
    whole = once // (2 + 4)
    assert (2 + 4) * whole < found[-1] < (2 * 2 + 4) * whole


def test_zero2_of_fsdp_gathers_once_and_reduces_in_every_micro_batch():
    found = traffic("tied", stack="torchtitan", sharding="zero2", dp_shard=8)
    assert found["dp"] == (2 + 4) * (BATCH // 8) * parameters(TIED, tied=True) + NORM_BYTES


def test_deepspeed_reduces_every_micro_batch_under_stage_2_and_the_sum_under_stage_1():
    one, two = (traffic("tied", stack="deepspeed", sharding=s, dp_shard=8)["dp"] for s in ("zero1", "zero2"))
    size = parameters(TIED, tied=True)
    assert one == (2 + 2) * size + NORM_BYTES
    assert two == (2 * (BATCH // 8) + 2) * size + NORM_BYTES


def test_sequence_parallel_layers_have_four_collectives_a_pass_and_two_more_gathers_backward():
    """Korthikanti et al. 2022: 2 all-gathers and 2 reduce-scatters each way; the input is gathered again."""
    found = traffic("tied", tp=8)
    size = 2 * SEQ_LEN * TIED.hidden
    per_layer = (4 + 4 + 2) * size
    embedding = 2 * size  # reduce-scatter forward, all-gather backward
    head = 2 * size + size + 12 * SEQ_LEN  # gather, reduce-scatter, gather again, statistics of the loss
    norms = 4 * (2 * TIED.layers + 1) * TIED.hidden
    assert found["tp"] == BATCH * (TIED.layers * per_layer + embedding + head) + norms
    assert found["dp"] == NORM_BYTES


def test_without_sequence_parallelism_two_all_reduces_each_way():
    found = traffic("tied", tp=8, sequence_parallel=False)
    size = 2 * SEQ_LEN * TIED.hidden
    assert found["tp"] == BATCH * (TIED.layers * 4 * size + size + size + 12 * SEQ_LEN)


def test_full_recomputation_repeats_the_forward_collectives_of_layers():
    once, again = (traffic("tied", tp=8, recompute=recompute)["tp"] for recompute in ("none", "full"))
    assert again - once == BATCH * TIED.layers * 4 * 2 * SEQ_LEN * TIED.hidden


def test_every_boundary_carries_activations_and_gradients_of_every_micro_batch():
    size = 2 * SEQ_LEN * UNTIED.hidden
    assert traffic("untied", pp=8)["pp"] == 2 * 7 * BATCH * size
    interleaved = {"schedule": "interleaved-1f1b", "virtual_stages": 2}
    assert traffic("untied", pp=8, pipeline=interleaved)["pp"] == 2 * 15 * BATCH * size
    assert traffic("untied", pp=4, tp=2)["pp"] == 2 * 3 * BATCH * size // 2
    assert traffic("untied", pp=4, dp_replicate=2)["pp"] == 2 * 3 * BATCH // 2 * size


def test_two_chains_take_half_of_the_micro_batches_each_and_sum_up_all_gradients():
    both = {"schedule": "dualpipe", "virtual_stages": 2}
    message = 2 * SEQ_LEN * TIED.hidden
    found = traffic("tied", stack="generic", pp=8, pipeline=both)
    assert found["pp"] == 2 * 7 * BATCH * message
    assert found["dp"] == 2 * 2 * parameters(TIED, tied=True) + 8 * NORM_BYTES
    cut = traffic("tied", stack="generic", sharding="zero1", pp=2, dp_shard=4, pipeline=both)
    assert cut["dp"] == 2 * (2 + 2 + 2 / 4) * parameters(TIED, tied=True) + 2 * NORM_BYTES


def test_a_ring_carries_keys_and_values_once_forward_and_twice_backward():
    width = 2 * TIED.kv_heads * TIED.head_dim
    found = traffic("tied", cp=8)
    assert found["cp"] == 3 * BATCH * TIED.layers * 2 * width * SEQ_LEN


def test_experts_exchange_each_token_with_each_of_its_experts_four_times():
    found = traffic("sparse", dp_replicate=8, ep=8)
    rows = SEQ_LEN * SPARSE.moe.experts_per_token
    assert found["ep"] == 4 * (BATCH // 8) * 16 * 2 * rows * SPARSE.hidden


def test_a_shared_table_is_reduced_between_the_ends_of_the_pipeline():
    tied = traffic("tied", pp=8)["dp"]
    assert tied == 2 * 4 * padded(TIED.vocab) * TIED.hidden + 8 * NORM_BYTES
    assert traffic("untied", pp=8)["dp"] == 8 * NORM_BYTES
