"""Chains of operators: order, places, widths, cuts, FLOPs and cache against independent figures."""

import json
from importlib.resources import files
from itertools import pairwise

import pytest

from meshwright.model.graph import Block, ModelGraph
from meshwright.model.load import load_model
from meshwright.model.operators.operator_types import (
    Combine,
    Dispatch,
    EnterTensor,
    ExpertActivation,
    ExpertLinear,
    LeaveTensor,
    Linear,
    Norm,
    Operator,
    Residual,
)
from meshwright.model.zoo_names import zoo_names

each_model = pytest.mark.parametrize("name", zoo_names())
each_decoder = pytest.mark.parametrize(
    "name", [name for name in zoo_names() if load_model(name).architecture.encoder is None]
)


def names(block: Block) -> list[str]:
    return [operator.name for operator in block.operators]


def layer(model: str, block: str) -> Block:
    return next(one for one in load_model(model).blocks if one.name == block)


def operator(block: Block, name: str) -> Operator:
    return next(one for one in block.operators if one.name == name)


def blocks(graph: ModelGraph) -> list[tuple[str, int]]:
    return [(graph.blocks[index].name, repeat) for index, repeat in graph.chain]


def test_chain_of_deepseek_v3() -> None:
    assert blocks(load_model("deepseek-v3")) == [("embed", 1), ("dense", 3), ("moe", 58), ("head", 1)]


def test_alternating_windows_share_two_blocks() -> None:
    graph = load_model("gemma-2-9b")
    assert [block.name for block in graph.blocks] == ["embed", "dense-window-4096", "dense", "head"]
    assert blocks(graph)[1:5] == [("dense-window-4096", 1), ("dense", 1)] * 2
    assert len(graph.layer_blocks) == 42


def test_chain_of_a_llama_layer() -> None:
    assert names(layer("llama-3.1-8b", "dense")) == [
        "input_norm",
        "enter_attention",
        "qkv",
        "attention",
        "o",
        "leave_attention",
        "attention_residual",
        "ffn_norm",
        "enter_ffn",
        "ffn_up",
        "ffn_activation",
        "ffn_down",
        "leave_ffn",
        "ffn_residual",
    ]


def test_chain_of_a_latent_routed_layer() -> None:
    block = layer("deepseek-v3", "moe")
    assert names(block) == [
        "input_norm",
        "q_a",
        "q_a_norm",
        "kv_a",
        "kv_a_norm",
        "enter_attention",
        "q_b",
        "kv_b",
        "attention",
        "o",
        "leave_attention",
        "attention_residual",
        "ffn_norm",
        "enter_shared",
        "shared_up",
        "shared_activation",
        "shared_down",
        "leave_shared",
        "router",
        "dispatch",
        "expert_up",
        "expert_activation",
        "expert_down",
        "combine",
        "ffn_residual",
    ]
    assert operator(block, "enter_attention").width == 1536 + 512 + 64
    assert not operator(block, "kv_a").saves_input
    assert operator(block, "q_a").saves_input
    assert not operator(block, "router").saves_input
    assert not operator(block, "attention").cache_over_tp


def test_router_keeps_its_input_where_no_shared_expert_does() -> None:
    assert operator(layer("mixtral-8x7b", "moe"), "router").saves_input


def test_four_norms_and_head_norms() -> None:
    gemma = [one for one in names(layer("gemma-2-9b", "dense")) if one.endswith("norm")]
    assert gemma == ["input_norm", "post_attention_norm", "ffn_norm", "post_ffn_norm"]
    qwen = layer("qwen3-8b", "dense")
    heads = {one: operator(qwen, one).instances for one in ("q_norm", "k_norm")}
    assert heads == {"q_norm": 32, "k_norm": 8}
    assert {operator(qwen, one).place for one in heads} == {"tensor"}


def test_embed_and_head() -> None:
    bloom = load_model("bloom-176b")
    assert names(bloom.embed) == ["embedding", "leave_embedding", "embedding_norm"]
    assert names(bloom.head) == ["final_norm", "enter_head", "lm_head", "loss"]
    assert bloom.head.operators[2].parameters == bloom.embed.operators[0].parameters  # tied
    untied = load_model("llama-2-7b")
    assert untied.head.operators[2].parameters[0].name == "lm_head.weight"
    positions = load_model("gpt-22b").embed.operators[0].parameters[1]
    assert (positions.shape, positions.tp_dim, positions.vocab_dim) == ((2048, 6144), None, None)


def test_dropout_of_the_gpt_family_only() -> None:
    def dropout(name: str) -> set[bool]:
        return {
            op.dropout
            for block in load_model(name).blocks
            for op in block.operators
            if isinstance(op, Residual)
        }

    assert dropout("gpt-22b") == {True}
    assert dropout("bloom-176b") == dropout("llama-3.1-8b") == {False}


@each_model
def test_operator_and_tensor_names_are_unique_in_their_block(name: str) -> None:
    for block in load_model(name).blocks:
        tensors = [tensor.name for op in block.operators for tensor in op.parameters]
        assert len(set(names(block))) == len(names(block))
        assert len(set(tensors)) == len(tensors)


@each_model
def test_places_follow_the_boundaries(name: str) -> None:
    """Walking a block, tokens are where the boundary operators left them."""
    for block in load_model(name).blocks:
        place = "tensor" if block.kind == "embed" else "sequence"
        entered = {op.name for op in block.operators if isinstance(op, EnterTensor)}
        for op in block.operators:
            if isinstance(op, EnterTensor):
                place = "tensor"
            elif isinstance(op, LeaveTensor):
                place = "sequence"
            elif isinstance(op, Dispatch | Combine):
                assert op.place == "expert"
                place = "expert" if isinstance(op, Dispatch) else "sequence"
            elif op.name in ("embedding", "patch_embedding"):  # each text or image begins anew
                place = op.place
            else:
                place = "tensor" if entered.intersection(op.reads) else place
                assert op.place == place, op.name
        assert place == ("tensor" if block.kind == "head" else "sequence")


@each_model
def test_weights_have_the_widths_and_cuts_of_their_operator(name: str) -> None:
    for op in [op for block in load_model(name).blocks for op in block.operators]:
        if isinstance(op, Linear | ExpertLinear):
            first = int(isinstance(op, ExpertLinear))
            weights = [tensor for tensor in op.parameters if tensor.name.endswith(".weight")]
            biases = [tensor for tensor in op.parameters if tensor.name.endswith(".bias")]
            assert sum(tensor.shape[first] for tensor in weights) == op.outputs
            assert {tensor.shape[first + 1] for tensor in weights} == {op.inputs}
            cut = {"column": first, "row": first + 1, "whole": None}[op.split]
            assert {tensor.tp_dim for tensor in weights} <= {cut, 0 if op.name == "lm_head" else cut}
            assert {tensor.tp_dim for tensor in biases} <= {first if op.split == "column" else None}
            assert sum(tensor.shape[first] for tensor in biases) in (0, op.outputs)
            assert {tensor.ep_dim for tensor in op.parameters} == {0 if first else None}
        elif isinstance(op, Norm):
            bare = load_model(name).architecture.norm == "bare-layernorm"
            assert {tensor.shape for tensor in op.parameters} == (set() if bare else {(op.width,)})
            assert {tensor.tp_dim for tensor in op.parameters} <= {None}


@each_model
def test_only_vocabulary_tables_are_padded(name: str) -> None:
    graph = load_model(name)
    padded = {
        tensor.name
        for block in graph.blocks
        for op in block.operators
        for tensor in op.parameters
        if tensor.vocab_dim is not None
    }
    head = () if graph.architecture.tied_embeddings else ("lm_head.weight",)
    bias = ("lm_head.bias",) if graph.architecture.head_bias else ()
    assert padded == {"embed_tokens.weight", *head, *bias}


@each_model
def test_widths_chain_up(name: str) -> None:
    """Inside a tensor or expert region every matrix takes what the one before it leaves."""
    for block in load_model(name).blocks:
        for before, after in pairwise(block.operators):
            if isinstance(after, ExpertActivation) or after.name.endswith("_activation"):
                assert before.outputs == after.width * (2 if after.gated else 1)
            if before.name.endswith("_activation"):
                assert after.inputs == before.width


@each_decoder
def test_training_flops_follow_the_textbook(name: str) -> None:
    """6·N per token for N active parameters without the input tables, and 6·(qk + v)·heads·positions.

    A state of linear attention is written and read: as if each head saw as many positions as it is wide. So is
    Mamba-2's, of ``state`` elements for each of its width; the delta rule reads it once more.
    """
    graph, seq = load_model(name), 4096
    arch = graph.architecture
    dense = graph.parameters_active - graph.parameters_embedding
    if arch.tied_embeddings:
        dense += arch.vocab * arch.hidden
    of_mixer = {"softmax": seq, "linear": arch.head_dim, "state-space": 0, "none": 0}
    seen = (of_mixer[mixer] for mixer in arch.mixers)
    positions = sum(
        most if window is None else min(seq, 2 * window)
        for most, window in zip(seen, arch.windows, strict=True)
    )
    attention = 6 * positions * arch.heads * (arch.head_dim + arch.v_head_dim)
    if arch.state_space is not None:
        each = 18 if arch.state_space.delta_rule else 12
        attention += each * sum(arch.state_space.layers) * arch.state_space.width * arch.state_space.state
    assert 3 * graph.flops_per_token_forward(seq) == pytest.approx(6 * dense + attention, rel=2e-3)


# Zhao et al. 2025, "Insights into DeepSeek-V3" (arXiv 2505.09343), tables 1 and 2: bf16 cache per token,
# training cost per token at 4096 positions with causal attention.
@pytest.mark.parametrize(
    ("name", "kv_bytes"), [("deepseek-v3", 70_272), ("qwen2.5-72b", 327_680), ("llama-3.1-405b", 516_096)]
)
def test_published_cache_per_token(name: str, kv_bytes: int) -> None:
    assert load_model(name).kv_bytes_per_token() == kv_bytes


@pytest.mark.parametrize(
    ("name", "gflops", "rel"),
    [("deepseek-v2", 155, 4e-3), ("deepseek-v3", 250, 4e-3), ("llama-3.1-405b", 2448, 0.02)],
)
def test_published_training_cost_per_token(name: str, gflops: float, rel: float) -> None:
    forward = load_model(name).flops_per_token_forward(4096, causal=True)
    assert 3 * forward == pytest.approx(gflops * 1e9, rel=rel)


@each_model
def test_zoo_files_name_their_source(name: str) -> None:
    config = json.loads(files("meshwright.model").joinpath("zoo", f"{name}.json").read_text())
    assert config["_source"] == load_model(name).source != ""
