"""Layers that are a mixer or a feed-forward part alone (Nemotron-H)."""

from collections import Counter
from typing import Any

import pytest

from meshwright.errors import InputError, UnsupportedError
from meshwright.model.describe import describe_model
from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.load import load_model
from meshwright.model.named_tensors import runnable_numerics
from meshwright.model.operators.blocks import build_graph
from meshwright.model.operators.multi_token_prediction import with_prediction_layers, without_next_tokens
from meshwright.model.operators.operator_types import Attention, Norm, Residual, StateSpace
from meshwright.plans.rules.stack_limits.megatron_models import unsayable_model
from meshwright.program.local_shape import LocalShape, Mode
from meshwright.program.lowering.block_items import forward_items
from meshwright.program.pass_items import Collective
from meshwright.stack.load import load_stack

MODEL = load_model("nemotron-3-nano-30b-a3b")
SMALL: dict[str, Any] = {
    "model_type": "nemotron_h",
    "vocab_size": 320,
    "hidden_size": 96,
    "num_hidden_layers": 5,
    "hybrid_override_pattern": "ME*-M",
    "intermediate_size": 200,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "moe_shared_expert_intermediate_size": 40,
    "mamba_num_heads": 4,
    "mamba_head_dim": 12,
    "n_groups": 2,
}


def read(**changes: Any):
    return read_architecture({**SMALL, **changes}, "small", "test")


def test_every_layer_has_one_part_one_norm_and_one_residual():
    names = [MODEL.blocks[index].name for index in MODEL.layer_blocks]
    assert Counter(names) == {"state-space": 23, "experts": 23, "attention": 6}
    for index in set(MODEL.layer_blocks):
        operators = MODEL.blocks[index].operators
        assert [sum(isinstance(op, kind) for op in operators) for kind in (Norm, Residual)] == [1, 1]


def test_only_attention_layers_have_a_cache_of_keys_and_values():
    assert MODEL.kv_bytes_per_token() == 6 * 2 * 2 * 128 * 2


def test_flops_of_a_token_are_those_of_its_products():
    """Two for each active parameter of a matrix that is no table, and the recurrence's 4 · width · state a layer."""
    small = build_graph(read())
    matrices = sum(
        2 * p.elements * (op.experts_per_token / op.experts if hasattr(op, "experts_per_token") else 1)
        for index, repeat in small.chain
        for op in small.blocks[index].operators
        if not isinstance(op, StateSpace)
        for p in op.parameters
        for _ in range(repeat)
        if len(p.shape) > 1 and p.name != "embed_tokens.weight"
    )
    attended = 64 * 4 * 6 * 16
    assert small.flops_per_token_forward(64) == pytest.approx(matrices + attended + 2 * 4 * 48 * 128)


def test_kinds_of_layers_are_read_by_letters_or_words():
    words = ["linear_attention", "moe", "full_attention", "mlp", "mamba"]
    other = read(hybrid_override_pattern=None, layers_block_type=words)
    assert (other.layer_parts, other.mixers) == (read().layer_parts, read().mixers)
    assert read().mixers == ("state-space", "none", "softmax", "none", "state-space")
    assert [block.name for block in build_graph(read()).blocks[1:-1]] == [
        "state-space",
        "experts",
        "attention",
        "feed-forward",
    ]


def test_kinds_that_are_absent_leave_nothing_behind():
    arch = read(num_hidden_layers=2, hybrid_override_pattern="**")
    assert (arch.moe, arch.state_space, arch.intermediate) == (None, None, 0)
    assert all(isinstance(block.operators[3], Attention) for block in build_graph(arch).blocks[1:-1])


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"num_hidden_layers": 4}, ["num_hidden_layers"]),
        ({"hybrid_override_pattern": None}, ["hybrid_override_pattern"]),
        ({"n_groups": 3, "num_experts_per_tok": 9}, ["num_experts_per_tok", "n_groups"]),
    ],
)
def test_wrong_values_are_all_named(changes, fields):
    with pytest.raises(InputError) as caught:
        read(**changes)
    assert [problem.field for problem in caught.value.problems] == fields


@pytest.mark.parametrize(
    "changes",
    [
        {"hybrid_override_pattern": "MEX-M"},
        {"use_bias": True},
        {"moe_latent_size": 16},
        {"sliding_window": 64},
    ],
)
def test_what_cannot_be_planned_is_refused_by_name(changes):
    with pytest.raises(UnsupportedError) as caught:
        read(**changes)
    assert [problem.field for problem in caught.value.problems] == list(changes)


def test_norms_of_groups_sum_nothing_over_ranks():
    shape = LocalShape(micro_batch=1, seq_len=16, cp=1, tp=2, ep=1, etp=1)
    block = MODEL.blocks[MODEL.layer_blocks[0]]
    items = forward_items(block, shape, Mode(sequence_parallel=True), load_stack("generic"))
    assert [i.what for i in items if isinstance(i, Collective)] == ["enter_attention", "leave_attention"]


def test_layers_for_further_tokens_have_both_parts():
    more = with_prediction_layers(read(num_hidden_layers=3, hybrid_override_pattern="*-*"), 2)
    assert more.layer_parts[3:] == ("both", "both")
    assert [block.name for block in build_graph(more).blocks[3:-1]] == [
        "next-token-dense",
        "next-tokens-dense",
    ]
    assert without_next_tokens(more).layer_parts == more.layer_parts[:3]


def test_a_description_counts_the_parts_of_layers():
    assert describe_model(MODEL)["architecture"]["layer_parts"] == {"mixer": 29, "feed-forward": 23}


def test_megatron_and_the_runtime_refuse_it_by_name():
    assert "no option for layers of one part" in " ".join(unsayable_model(MODEL.architecture))
    with pytest.raises(UnsupportedError, match="models of type nemotron_h can be planned, not run yet"):
        runnable_numerics(MODEL.architecture)
