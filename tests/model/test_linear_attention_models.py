"""Models with linear attention: what is read of a configuration, and what their layers are made of."""

from math import exp

import pytest
from small_decoder_config import SIZES

from meshwright.errors import InputError, UnsupportedError
from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.load import load_model
from meshwright.model.named_tensors import runnable_numerics
from meshwright.model.numerics import HeadDecay, Mixing
from meshwright.model.operators.blocks import build_graph
from meshwright.model.operators.data_flow import sources
from meshwright.model.operators.operator_types import Attention, LinearAttention
from meshwright.model.rotary import Rotary

SMALL = {"model_type": "minimax", **SIZES, "num_local_experts": 4, "num_experts_per_tok": 2}


def read(**changes):
    return read_architecture({**SMALL, **changes}, "test", "here")


def test_minimax_has_a_softmax_in_every_eighth_layer():
    model = load_model("minimax-text-01")
    blocks = [model.blocks[index] for index in model.layer_blocks]
    soft = [layer for layer, block in enumerate(blocks) if block.name == "moe"]
    assert soft == list(range(7, 80, 8))
    assert {block.name for block in blocks} == {"moe", "moe-linear"}
    assert model.kv_bytes_per_token() == 10 * 2 * 2 * 8 * 128


def test_flops_of_linear_attention_do_not_grow_with_the_sequence():
    model = load_model("minimax-text-01")
    (block,) = (block for block in model.blocks if block.name == "moe-linear")
    (core,) = (op for op in block.operators if isinstance(op, LinearAttention))
    assert not any(isinstance(op, Attention) for op in block.operators)
    assert core.flops_per_token(10.0) == core.flops_per_token(1e6) == 4 * 64 * 128**2
    short, long = (block.flops_per_token_forward(length, causal=True) for length in (1024, 2**20))
    assert short == long


def test_without_a_word_every_second_layer_is_linear():
    arch = read(sliding_window=8)
    assert arch.linear.layers == (False, True, False, True)
    assert arch.windows == (8, None, 8, None)
    assert (arch.linear.block, dict(arch.assumed)["block_size"]) == (256, 256)


def test_a_part_is_added_to_its_norms_result():
    of = sources(build_graph(read()).blocks[1].operators)
    assert of["attention_residual"][1] == "input_norm"
    assert of["ffn_residual"][1] == "ffn_norm"


def test_heads_forget_at_rates_of_their_own_less_from_layer_to_layer():
    decay = HeadDecay(heads=8, layers=4)
    first, last = decay.rates(0), decay.rates(3)
    assert first == pytest.approx([2.0**-n * (1 + 1e-5) for n in range(1, 9)])
    assert all(0.999 < exp(-rate) < 1 for rate in last)


def test_factors_depend_on_the_kind_of_a_part():
    found = runnable_numerics(
        read(full_attn_alpha_factor=2.0, linear_attn_beta_factor=0.5, mlp_alpha_factor=3.0, mlp_beta_factor=4)
    )
    assert found.attention_mixing == (Mixing(stream=2.0), Mixing(part=0.5)) * 2
    assert found.feedforward_mixing == Mixing(stream=3.0, part=4.0)


def test_rotary_dim_is_what_is_rotated_of_a_head_with_a_softmax():
    rotary = runnable_numerics(read(rotary_dim=8)).rotary
    assert rotary == (Rotary(theta=1e6, dim=8), None) * 2
    assert runnable_numerics(read()).rotary[0].dim == 16


@pytest.mark.parametrize(
    "changes",
    [
        {"postnorm": False},
        {"shared_intermediate_size": 32},
        {"layer_types": ["linear_attention", "full_attention", "sliding_attention", "full_attention"]},
    ],
)
def test_what_cannot_be_planned_is_refused_by_name(changes):
    with pytest.raises(UnsupportedError) as caught:
        read(**changes)
    assert [problem.field for problem in caught.value.problems] == list(changes)


def test_layer_types_are_one_for_each_layer():
    with pytest.raises(InputError, match="num_hidden_layers"):
        read(layer_types=["linear_attention"] * 3)


@pytest.mark.parametrize("key", ["rotary_dim", "router_jitter_noise"])
def test_what_cannot_be_run_is_refused_by_name(key):
    with pytest.raises(UnsupportedError) as caught:
        runnable_numerics(read(**{key: 32}))
    assert [problem.field for problem in caught.value.problems] == [key]
