"""An iteration is the sum of its operators; it grows with its load and falls with faster devices."""

from dataclasses import replace

import numpy as np
import pytest
from replicas import replica

from meshwright.cost.serving.iteration import Overheads, iteration_seconds
from meshwright.cost.serving.operators import RULES, IterationLoad, collective_seconds
from meshwright.cost.serving.overlap_forms import serial_seconds
from meshwright.model.operators.operator_types import (
    Combine,
    EnterTensor,
    LeaveTensor,
    Residual,
)
from meshwright.program.pass_items import Collective
from meshwright.program.serving.storage_formats import StorageFormats

DECODE = IterationLoad(sequences=32.0, context=2000.0)
MIXED = IterationLoad(
    prompt_tokens=2048.0, prompt_positions=1024.0, prompts=1.0, sequences=32.0, context=2000.0
)
FREE = Overheads()


def operator_seconds(op, block, local):
    """Seconds of the items of one operator alone."""
    return float(serial_seconds(replace(block, operators=(op,)), local))


@pytest.mark.parametrize("load", [DECODE, MIXED])
def test_an_iteration_of_a_dense_model_is_the_sum_of_its_operators(load):
    cost = replica(tp=4, overheads=FREE)
    local, model = cost.local(load), cost.model
    operators = [
        repeat * operator_seconds(op, model.blocks[index], local)
        for index, repeat in model.chain
        for op in model.blocks[index].operators
    ]
    assert iteration_seconds(cost, load) == pytest.approx(sum(operators), rel=1e-12)


def test_overheads_of_a_pipeline_are_added_for_each_stage():
    free, timed = replica(pp=4, overheads=FREE), replica(pp=4, overheads=Overheads(0.002, 1e-5))
    more = iteration_seconds(timed, DECODE) - iteration_seconds(free, DECODE)
    assert more == pytest.approx(4 * (0.002 + 32 * 1e-5))


def test_a_pipeline_takes_the_way_of_a_micro_batch_or_a_turn_of_its_slowest_stage():
    one, layers = replica(overheads=FREE), 80
    local, model = one.local(DECODE), one.model
    embed, layer, head = (float(serial_seconds(block, local)) for block in model.blocks)
    message = float(one.times.forms.p2p(2 * 8192 * 32.0, False))
    way = embed + layers * layer + head + 3 * message
    turn = 4 * (layers / 4 * layer + max(embed, head))
    assert iteration_seconds(replica(pp=4, overheads=FREE), DECODE) == pytest.approx(max(way, turn), rel=1e-9)
    uneven = iteration_seconds(replica(pp=3, overheads=FREE), DECODE)
    assert uneven == pytest.approx(3 * max(embed + 27 * layer, 26 * layer + head), rel=1e-9)


def test_shared_experts_need_an_all_reduce_of_their_own_only_with_attention_dp():
    formats = StorageFormats(weights="fp8-block", beside_experts="fp8-block")
    together = replica("deepseek-v3", formats=formats, overheads=FREE, tp=8, ep=8)
    local, model = together.local(DECODE), together.model
    joined = sum(
        repeat * operator_seconds(op, model.blocks[index], local)
        for index, repeat in model.chain
        for op in model.blocks[index].operators
        if op.name == "leave_shared" and not model.blocks[index].predicts_further
    )
    every = sum(
        repeat * operator_seconds(op, model.blocks[index], local)
        for index, repeat in model.chain
        for op in model.blocks[index].operators
        if not model.blocks[index].predicts_further
    )
    assert joined > 0
    assert iteration_seconds(together, DECODE) == pytest.approx(every - joined, rel=1e-12)


def test_every_operator_of_the_models_has_a_rule_or_no_kernel():
    free = (EnterTensor, Residual, LeaveTensor, Combine)  # the last two have collectives alone
    for name in ("llama-3.1-8b", "deepseek-v3", "gpt-oss-120b", "granite-4.0-h-350m", "minimax-text-01"):
        for block in replica(name).model.blocks:
            for op in block.operators:
                assert type(op) in RULES or isinstance(op, free) or block.predicts_further, op


@pytest.mark.parametrize(
    ("model", "degrees"),
    [
        ("llama-3.1-70b", {"tp": 8}),
        ("llama-3.1-70b", {"tp": 2, "pp": 4}),
        ("deepseek-v3", {"attention_dp": 8, "ep": 8}),
        ("gpt-oss-120b", {"tp": 4, "ep": 2, "etp": 2}),
        ("granite-4.0-h-350m", {}),
    ],
)
def test_seconds_grow_with_sequences_context_and_prompts(model, degrees):
    cost = replica(model, **degrees)
    many = np.array([1.0, 2.0, 7.0, 64.0, 300.0, 2000.0])
    for load in (
        IterationLoad(sequences=many, context=1000.0),
        IterationLoad(sequences=16.0, context=100 * many),
        IterationLoad(sequences=16.0, context=1000.0, prompt_tokens=many, prompt_positions=many / 2),
    ):
        assert (np.diff(iteration_seconds(cost, load)) >= 0).all()


def test_faster_memory_and_narrower_weights_never_slow_an_iteration():
    cost = replica(tp=4)
    forms = replace(cost.times.forms, memory_bytes_per_s=2 * cost.times.forms.memory_bytes_per_s)
    faster = replace(cost, times=replace(cost.times, forms=forms))
    wider = replace(cost, formats=StorageFormats(weights="bf16", kv="bf16"))
    for load in (DECODE, MIXED):
        assert iteration_seconds(faster, load) < iteration_seconds(cost, load)
        assert iteration_seconds(wider, load) > iteration_seconds(cost, load)


def test_results_of_experts_are_summed_like_those_of_a_dense_layer_without_attention_dp():
    cost = replica("mixtral-8x7b", tp=8, etp=8)
    local = cost.local(DECODE)
    block, combine = next(
        (block, op) for block in cost.model.blocks for op in block.operators if isinstance(op, Combine)
    )
    leave = LeaveTensor(name="leave", width=combine.width)
    assert operator_seconds(combine, block, local) == operator_seconds(leave, block, local) > 0


def test_arrays_of_layouts_give_each_what_it_has_alone():
    tp, pp = np.array([1, 2, 4, 8]), np.array([2, 1, 2, 1])
    together = iteration_seconds(replica(tp=tp, pp=pp), MIXED)
    alone = [
        float(iteration_seconds(replica(tp=int(a), pp=int(b)), MIXED)) for a, b in zip(tp, pp, strict=True)
    ]
    assert together == pytest.approx(alone, rel=1e-12)


def test_the_quickest_of_alternatives_runs_where_it_has_several_ranks():
    times, ranks = replica().times, {"tp": 8, "ep": 4, "cp": 1}

    def seconds(item):
        return float(collective_seconds(item, times, lambda axes: ranks[axes[0]]))

    gather = Collective("all-gather", ("tp",), 1e8, "rows")
    few, many = (Collective("all-to-all", ("ep",), size, "copies") for size in (1e6, 1e10))
    assert seconds(few) < seconds(gather) < seconds(many)
    assert seconds(replace(gather, alternatives=(few,))) == seconds(few)
    assert seconds(replace(gather, alternatives=(many,))) == seconds(gather)
    alone = replace(few, axes=("cp",))
    assert seconds(replace(gather, alternatives=(alone,))) == seconds(gather)
