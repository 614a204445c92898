"""The description: the keys that scripts read, consistent sums, defaults shown."""

import json

import pytest

from meshwright.errors import InputError
from meshwright.model.describe import describe_model
from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.load import load_model
from meshwright.model.operators.blocks import build_graph
from meshwright.model.zoo_names import zoo_names


@pytest.mark.parametrize("name", zoo_names())
def test_blocks_add_up(name: str) -> None:
    graph = load_model(name)
    told = json.loads(json.dumps(describe_model(graph, 2048), allow_nan=False))
    tied = graph.architecture.vocab * graph.architecture.hidden * graph.architecture.tied_embeddings
    for key, minus in (("parameters", tied), ("parameters_active", tied), ("flops_per_token_forward", 0)):
        total = sum(block["repeat"] * block[key] for block in told["blocks"])
        assert told[key] == pytest.approx(total - minus, rel=1e-12)
    encoder = graph.architecture.encoder
    further = 0 if encoder is None else encoder.layers + 1  # its layers, and its end
    assert sum(repeat for _, repeat in told["chain"]) == graph.architecture.layers + 2 + further
    assert told["source"] == graph.source


def test_keys_that_scripts_read() -> None:
    told = describe_model(load_model("deepseek-v3"))
    assert told["seq_len"] == 4096
    assert told["name"] == "deepseek-v3"
    assert told["parameters"] == 671_026_404_352
    assert told["parameters_embedding"] == 129280 * 7168
    assert told["kv_bytes_per_token"] == 70_272
    assert 0.8 < told["flops_per_token_forward_causal"] / told["flops_per_token_forward"] < 1
    assert told["architecture"]["moe"]["layers"] == 58
    assert told["chain"] == [["embed", 1], ["dense", 3], ["moe", 58], ["head", 1]]


def test_causal_is_half_the_attention() -> None:
    """2·L·heads·seq·(qk + v) FLOPs of attention without the discount, half of it with."""
    told, arch = describe_model(load_model("llama-3.1-8b"), 8192), load_model("llama-3.1-8b").architecture
    attention = 2 * arch.layers * arch.heads * 8192 * 2 * arch.head_dim
    assert told["flops_per_token_forward"] - told["flops_per_token_forward_causal"] == attention / 2


def test_windows_are_counted() -> None:
    told = describe_model(load_model("gpt-oss-20b"))
    assert told["architecture"]["windows"] == {"128 positions": 12, "all positions": 12}


def test_assumed_defaults_are_shown() -> None:
    sizes = {"vocab_size": 9, "n_embd": 12, "n_layer": 1, "n_head": 3}
    told = describe_model(build_graph(read_architecture({"model_type": "gpt2", **sizes}, "x", "y")))
    assert told["assumed"]["n_positions"] == 1024
    assert told["assumed"]["tie_word_embeddings"] is True


def test_sequence_length_is_positive() -> None:
    with pytest.raises(InputError, match="seq_len >= 1"):
        describe_model(load_model("llama-2-7b"), 0)
