"""Models whose layers run different things again: other blocks, the same operators and parameters."""

import pytest

from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.operators.blocks import build_graph
from meshwright.model.transforms.recomputed_layers import with_recompute

CONFIG = {
    "model_type": "gemma2",
    "num_hidden_layers": 6,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "sliding_window": 512,
}


@pytest.fixture
def model():
    """Windows on every other layer: two kinds of layers."""
    return build_graph(read_architecture(CONFIG, "two kinds", "a test"))


def test_one_choice_for_all_layers_keeps_every_index(model):
    for choice in ((), "full", ("mlp",)):
        planned = with_recompute(model, [choice] * 6)
        assert planned.chain == model.chain
        assert [block.recompute for block in planned.blocks] == [(), choice, choice, ()]
    assert with_recompute(model, [()] * 6) == model


def test_layers_of_one_kind_with_other_choices_are_blocks_of_their_own(model):
    choices = ["full", "full", (), "full", (), ("mlp",)]
    planned = with_recompute(model, choices)
    assert [planned.blocks[index].recompute for index in planned.layer_blocks] == choices
    assert planned.layer_blocks == (1, 2, 4, 2, 4, 5)
    assert planned.chain[0] == model.chain[0]
    assert planned.chain[-1] == model.chain[-1]


def test_nothing_else_changes(model):
    planned = with_recompute(model, ["full", (), (), "full", ("mlp",), "full"])
    assert planned.parameters == model.parameters
    assert planned.flops_per_token_forward(128) == model.flops_per_token_forward(128)
    for before, after in zip(model.layer_blocks, planned.layer_blocks, strict=True):
        assert planned.blocks[after].operators == model.blocks[before].operators
        assert planned.blocks[after].name == model.blocks[before].name
