import pytest

from meshwright.model.adapter_targets import targets_of
from meshwright.model.load import load_model
from meshwright.model.operators.operator_types import ExpertLinear, Linear, LowRank
from meshwright.model.transforms.lora_adapters import with_adapters
from meshwright.workload.adapter import DEFAULT_RANK, Adapter


def parameters(model, trained):
    return sum(
        repeat * p.elements
        for index, repeat in model.chain
        for op in model.blocks[index].operators
        for p in op.parameters
        if p.trained is trained
    )


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-3-175b", "mixtral-8x7b", "deepseek-v3"])
def test_the_model_is_frozen_and_only_adapters_train(name):
    plain = load_model(name)
    adapted = with_adapters(plain)
    tied = plain.architecture.vocab * plain.architecture.hidden if plain.architecture.tied_embeddings else 0
    assert parameters(adapted, trained=False) == plain.parameters + tied
    wanted = sum(
        repeat * DEFAULT_RANK * (op.inputs + op.outputs)
        for index, repeat in plain.chain
        if plain.blocks[index].kind == "layer"
        for op in plain.blocks[index].operators
        if isinstance(op, Linear)
    )
    assert parameters(adapted, trained=True) == wanted
    assert not adapted.tied_gradients


def test_an_adapter_is_cut_as_its_operator_is():
    block = with_adapters(load_model("llama-3.1-8b")).blocks[1]
    by_name = {op.name: op for op in block.operators}
    pairs = [
        (op, by_name[f"{op.name}.adapter_in"], by_name[f"{op.name}.adapter_out"])
        for op in block.operators
        if isinstance(op, Linear) and "adapter" not in op.name
    ]
    assert {op.split for op, _, _ in pairs} >= {"row", "column"}
    for op, down, up in pairs:
        assert (down.split, up.split) == {
            "row": ("row", "whole"),
            "column": ("whole", "column"),
            "whole": ("whole", "whole"),
        }[op.split]
        assert not down.saves_input
        assert (down.inputs, up.outputs) == (op.inputs, op.outputs)


def test_experts_have_none():
    block = next(b for b in with_adapters(load_model("mixtral-8x7b")).blocks if b.kind == "layer")
    assert not any(p.trained for op in block.operators if isinstance(op, ExpertLinear) for p in op.parameters)


def test_a_model_that_has_them_gets_no_others():
    once = with_adapters(load_model("mixtral-8x7b"))
    assert with_adapters(once) == once


def products(model):
    return [op for block in model.blocks for op in block.operators if isinstance(op, LowRank)]


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-3-175b", "mixtral-8x7b", "deepseek-v3"])
def test_each_target_has_a_pair_of_its_own_and_all_else_is_frozen(name):
    plain = load_model(name)
    model = with_adapters(plain, Adapter(rank=16, alpha=8))
    trained = {p.name: p for b in model.blocks for op in b.operators for p in op.parameters if p.trained}
    names = {
        p.name.removesuffix(".weight"): p
        for b in plain.blocks
        for op in b.operators
        for p in op.parameters
        if targets_of(op, p.name.removesuffix(".weight"))
    }
    assert set(trained) == {f"{name}.lora_{side}.weight" for name in names for side in "AB"}
    for name, matrix in names.items():
        down, up = trained[f"{name}.lora_A.weight"], trained[f"{name}.lora_B.weight"]
        *stack, outputs, inputs = matrix.shape
        assert down.shape == (*stack, 16, inputs)
        assert up.shape == (*stack, outputs, 16)
        assert (matrix.tp_dim, matrix.ep_dim) in [(p.tp_dim, p.ep_dim) for p in (down, up)] + [
            (None, matrix.ep_dim)
        ]
    assert all(op.scale == 0.5 for op in products(model))
    assert with_adapters(model) == model


def test_what_read_a_result_reads_it_with_its_adapters():
    block = with_adapters(load_model("deepseek-v3"), Adapter(targets=("q_b", "kv_b"))).blocks[1]
    by_name = {op.name: op for op in block.operators}
    assert by_name["attention"].reads == ("q_b.adapter", "kv_b.adapter")
    assert by_name["q_b.adapter"].reads == ("q_b", "enter_attention")
    assert by_name["q_b.adapter"].saves_input
    assert by_name["kv_b.adapter"].saves_input, "each takes another part of the pair that enters"


def test_a_product_that_takes_some_matrices_of_an_operator_knows_their_outputs():
    qkv = products(with_adapters(load_model("llama-3.1-8b"), Adapter(targets=("q", "v"))))[0]
    assert [(m.name, m.start, m.outputs) for m in qkv.matrices] == [
        ("self_attn.q_proj", 0, 4096),
        ("self_attn.v_proj", 5120, 1024),
    ]
    assert qkv.flops_per_token(0) == 2 * 32 * (2 * 4096 + 4096 + 1024)


def test_only_matrices_of_layers_are_quantised():
    model = with_adapters(load_model("mixtral-8x7b"), Adapter(base="nf4"))
    storage = {p.name: p.storage for b in model.blocks for op in b.operators for p in op.parameters}
    assert storage["self_attn.q_proj.weight"] == storage["mlp.experts.up_proj.weight"] == "nf4"
    assert storage["embed_tokens.weight"] is storage["lm_head.weight"] is storage["norm.weight"] is None
