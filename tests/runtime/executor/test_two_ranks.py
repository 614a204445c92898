"""Two ranks, sharded parameters, split backward passes, recomputation: the same numbers as plain PyTorch on one."""

import pytest

pytest.importorskip("torch")

from local_plans import error, reference, run, small
from tiny_models import tiny

EQUAL = 1e-12
MODEL = tiny("llama", num_hidden_layers=4)


def held_against_the_reference(case, steps=2):
    results, gradients, parameters, *_ = run(case, steps=steps)
    expected, reference_gradients, reference_parameters = reference(case, steps)
    for found, (loss, norm) in zip(results, expected, strict=True):
        assert found.loss == pytest.approx(loss, rel=EQUAL)
        assert found.norm == pytest.approx(norm, rel=EQUAL)
    assert error(gradients, reference_gradients) < EQUAL
    assert error(parameters, reference_parameters) < 1e-9


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("gather", ["per-step", "per-micro-batch", "per-layer"])
@pytest.mark.parametrize("recompute", ["none", "full", ("layernorm", "mlp", "core_attn")])
def test_sharded_parameters_split_passes_and_recomputation_compose(gather, recompute):
    pipeline = {"schedule": "zb-h1"}
    case = small(MODEL, pipeline, "zero3", gather, recompute, pp=2, dp_shard=2)
    held_against_the_reference(case)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_tensor_parallel_stages_with_heads_of_their_own_norms(sequence_parallel):
    case = small(tiny("qwen3"), sharding="zero1", pp=2, tp=2, sequence_parallel=sequence_parallel)
    held_against_the_reference(case)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("family", ["gpt2", "gemma2", "bloom", "olmo"])
def test_a_table_of_both_ends_is_summed_over_them_and_counted_once(family):
    held_against_the_reference(small(tiny(family), sharding="zero1", pp=2, dp_shard=2))
    held_against_the_reference(small(tiny(family), sharding="zero3", gather="per-layer", dp_shard=2))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("virtual_stages", [1, 2])
def test_chunks_in_a_v_and_in_a_loop_take_the_right_messages(virtual_stages):
    schedule = "v-half" if virtual_stages == 1 else "interleaved-1f1b"
    pipeline = {"schedule": schedule, "virtual_stages": 2}
    held_against_the_reference(small(MODEL, pipeline, pp=2))
