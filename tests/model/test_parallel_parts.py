"""Layers whose mixer and feed-forward part read the result of one norm (GPT-J)."""

from dataclasses import replace

import pytest

from meshwright.errors import UnsupportedError
from meshwright.model.load import load_model
from meshwright.model.named_tensors import runnable_numerics
from meshwright.model.operators.blocks import build_graph
from meshwright.model.operators.data_flow import sources, users
from meshwright.model.transforms.lora_adapters import with_adapters
from meshwright.model.transforms.recomputed_layers import with_recompute
from meshwright.plans.rules.stack_limits.megatron_models import unsayable_model
from meshwright.program.activation_bytes import kept_bytes
from meshwright.program.local_shape import LocalShape, Mode
from meshwright.program.lowering.block_items import backward_items, forward_items
from meshwright.program.pass_items import Collective, Overlap
from meshwright.stack.load import load_stack
from meshwright.workload.adapter import Adapter

MODEL = load_model("gpt-j-6b")
IN_ORDER = build_graph(replace(MODEL.architecture, parallel_parts=False))
HIDDEN, TOKENS = 4096, 128
SHAPE = LocalShape(micro_batch=1, seq_len=TOKENS, cp=1, tp=4, ep=1, etp=1)
STACK = load_stack("megatron-core")


def layer(model):
    return model.blocks[model.layer_blocks[0]]


def gathers(items):
    flat = [one for item in items for one in (item.overlapped if isinstance(item, Overlap) else (item,))]
    return [one.phase for one in flat if isinstance(one, Collective) and one.kind == "all-gather"]


def test_both_parts_read_one_norm_and_each_is_added_to_the_stream():
    operators = layer(MODEL).operators
    of = sources(operators)
    assert [op.name for op in users(operators)["input_norm"]] == ["qkv", "ffn_up"]
    assert of["attention_residual"] == ("leave_attention", "")
    assert of["ffn_residual"] == ("leave_ffn", "attention_residual")
    assert "ffn_norm" not in of


def test_a_layer_has_one_norm_less_and_the_same_products():
    assert layer(IN_ORDER).parameters - layer(MODEL).parameters == 2 * HIDDEN
    assert IN_ORDER.flops_per_token_forward(TOKENS) == MODEL.flops_per_token_forward(TOKENS)


def test_a_layer_keeps_the_input_of_one_norm_and_of_one_product_less():
    """Both are whole on each rank without sequence parallelism."""
    mode = Mode(sequence_parallel=False)
    saved = [kept_bytes(layer(model), SHAPE, mode, STACK) for model in (IN_ORDER, MODEL)]
    assert saved[0] - saved[1] == 2 * 2 * HIDDEN * TOKENS


def test_adapters_of_both_parts_keep_their_input_once():
    mode = Mode(sequence_parallel=False)
    adapter = Adapter(rank=4, targets=("q_proj", "up_proj"))
    saved = [
        kept_bytes(layer(with_adapters(model, adapter)), SHAPE, mode, STACK) for model in (IN_ORDER, MODEL)
    ]
    assert saved[0] - saved[1] == 2 * 2 * HIDDEN * TOKENS


def test_parts_share_the_gather_of_their_input():
    mode = Mode(sequence_parallel=True)
    made = [gathers(forward_items(layer(model), SHAPE, mode, STACK)) for model in (IN_ORDER, MODEL)]
    assert [len(phases) for phases in made] == [2, 1]


def test_a_feed_forward_part_that_runs_again_gathers_its_input_again():
    mode = Mode(sequence_parallel=True)
    again = with_recompute(MODEL, [("mlp",)] * 28)
    assert gathers(backward_items(layer(again), SHAPE, mode, STACK)).count("R") == 1


def test_an_output_projection_with_a_bias_has_one_for_each_token_of_the_vocabulary():
    head = {p.name: p.shape for op in MODEL.head.operators for p in op.parameters}
    assert head["lm_head.bias"] == (50400,)
    tied = build_graph(replace(MODEL.architecture, tied_embeddings=True))
    assert MODEL.parameters - tied.parameters == 50400 * HIDDEN


def test_megatron_and_the_runtime_refuse_it_by_name():
    said = " ".join(unsayable_model(MODEL.architecture))
    assert "attention and feed-forward behind one norm" in said
    assert "a bias of the output projection" in said
    with pytest.raises(UnsupportedError, match="models of type gptj can be planned, not run yet"):
        runnable_numerics(MODEL.architecture)
