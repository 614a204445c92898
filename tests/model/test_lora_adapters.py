import pytest

from meshwright.model.load import load_model
from meshwright.model.operators.operator_types import ExpertLinear, Linear
from meshwright.model.transforms.lora_adapters import with_adapters


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
    adapted = with_adapters(plain, rank=16)
    tied = plain.architecture.vocab * plain.architecture.hidden if plain.architecture.tied_embeddings else 0
    assert parameters(adapted, trained=False) == plain.parameters + tied
    wanted = sum(
        repeat * 16 * (op.inputs + op.outputs)
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
