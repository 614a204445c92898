"""Matrices that Muon takes, what they cost, and how ranks share them."""

from dataclasses import replace

import pytest

from meshwright.model.load import load_model
from meshwright.program.local_shape import LocalShape
from meshwright.program.model_states.hidden_matrices import held_matrices, stage_matrices, stepped
from meshwright.stack.load import load_stack
from meshwright.stack.state_types import with_types
from meshwright.workload.optimizer_choice import Optimizer

MUON = Optimizer("muon")


def shape_of(**degrees):
    usual = {"micro_batch": 1, "seq_len": 4096, "cp": 1, "tp": 1, "ep": 1, "etp": 1}
    return LocalShape(**(usual | degrees))


def stage_of(model, stack="meshwright", optimizer=MUON):
    graph, facts = load_model(model), with_types(load_stack(stack), "bf16", {}, optimizer)
    return stage_matrices((graph.blocks[index] for index in graph.layer_blocks), facts), facts


def test_every_hidden_matrix_is_one_and_the_vocabulary_is_none():
    found, stack = stage_of("llama-3.1-8b")
    assert {(m.whole(), n) for m, n in found.items()} == {
        ((4096, 4096), 32),  # q and o differ in what tp cuts
        ((1024, 4096), 64),
        ((14336, 4096), 64),
        ((4096, 14336), 32),
    }
    dense, expert = held_matrices(found, "none", shape_of(), stack)
    assert (dense, expert) == (8030261248 - 2 * 128256 * 4096 - 65 * 4096, 0)


def test_a_stack_that_fuses_gate_and_up_has_one_matrix_for_both():
    found, stack = stage_of("llama-3.1-8b", "megatron-core")
    assert ((2 * 14336, 4096), 32) in {(m.whole(), n) for m, n in found.items()}
    assert held_matrices(found, "none", shape_of(tp=8), stack)[0] == 6979321856 / 8


def test_the_price_of_a_matrix_is_that_of_its_products():
    found, _ = stage_of("llama-3.1-8b")
    (down,) = (m for m in found if m.whole() == (4096, 14336))
    m, n = 4096, 14336
    assert down.flops(shape_of(), 5, "blockwise") == 5 * (4 * m * m * n + 2 * m**3)
    assert down.flops(shape_of(tp=2), 5, "blockwise") == 5 * (4 * m * m * n / 2 + 2 * m**3)
    assert down.flops(shape_of(tp=2), 5, "duplicated") == down.flops(shape_of(), 5, "blockwise")
    assert down.flops(shape_of(tp=8), 1, "distributed") == 4 * m * m * n / 8 + 2 * m**3


@pytest.mark.parametrize("ranks", [1, 3, 8, 64, 500])
def test_ranks_own_whole_matrices_and_the_first_has_at_most_one_above_the_mean(ranks):
    found, stack = stage_of("llama-3.1-8b")
    shape = shape_of(shard=ranks)
    whole, owned = (stepped(found, sharding, shape, stack) for sharding in ("none", "zero1"))
    flops = {matrix: matrix.flops(shape, 5, "blockwise") for matrix in found}
    every, most = (sum(n * flops[m] for m, n in counts.items()) for counts in (whole, owned))
    assert every / ranks <= most <= every / ranks + max(flops.values())
    assert sum(owned.values()) == -(-sum(whole.values()) // ranks)


def test_experts_are_dealt_by_themselves_and_cut_evenly_with_their_parameters():
    found, stack = stage_of("qwen3-30b-a3b")
    shape = shape_of(ep=8, shard=16, expert_shard=2)
    per_rank = sum(m.elements(shape) * m.local_count(shape) * n for m, n in found.items() if m.expert)
    assert held_matrices(found, "zero1", shape, stack)[1] == per_rank / 2
    assert held_matrices(found, "zero3", shape, stack)[1] == per_rank / 2
    assert stepped(found, "zero3", shape, stack) == stepped(found, "none", shape, stack)


def test_other_optimizers_have_no_matrices_of_their_own():
    found, stack = stage_of("llama-3.1-8b", optimizer=Optimizer("lion"))
    assert found == {}
    assert held_matrices(found, "zero1", shape_of(), stack) == (0, 0)


def test_states_of_optimizers_have_the_moments_that_they_keep():
    stack = load_stack("meshwright")
    counts = {
        str(optimizer): with_types(stack, "bf16", {}, optimizer)
        for optimizer in (
            Optimizer(),
            Optimizer("lion"),
            Optimizer("sgd"),
            Optimizer("sgd", (("momentum", 0.9),)),
            MUON,
        )
    }
    assert [found.optimizer_bytes for found in counts.values()] == [12, 8, 4, 8, 12]
    assert counts["muon"].matrix_optimizer_bytes == 8
    narrow = with_types(stack, "bf16", {"first_moment": "bf16", "second_moment": "fp8"}, MUON)
    assert (narrow.optimizer_bytes, narrow.matrix_optimizer_bytes, narrow.scaled_moments) == (7, 6, 1)
    assert with_types(narrow, "bf16", {}) == replace(stack, base=None)
