"""Models with Mamba-2 layers: what is read of a configuration, and what their layers are made of."""

import pytest
from small_decoder_config import SIZES

from meshwright.errors import InputError, UnsupportedError
from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.load import load_model
from meshwright.model.named_tensors import is_matrix, runnable_numerics
from meshwright.model.operators.blocks import build_graph
from meshwright.model.operators.data_flow import sources
from meshwright.model.operators.operator_types import Attention, StateSpace
from meshwright.model.rotary import Rotary

SMALL = {"model_type": "granitemoehybrid", **SIZES, "num_local_experts": 0, "mamba_n_heads": 4}
WIDTH = 2 * SIZES["hidden_size"]


def read(**changes):
    return read_architecture({**SMALL, **changes}, "test", "here")


def test_granite_has_attention_in_every_tenth_layer():
    model = load_model("granite-4.0-h-micro")
    soft = [layer for layer, mixer in enumerate(model.architecture.mixers) if mixer == "softmax"]
    assert soft == [5, 15, 25, 35]
    assert {model.blocks[index].name for index in model.layer_blocks} == {"dense", "dense-state-space"}
    assert model.kv_bytes_per_token() == 4 * 2 * 2 * 8 * 64
    assert set(runnable_numerics(model.architecture).rotary) == {None}


def test_flops_of_a_state_do_not_grow_with_the_sequence():
    model = load_model("granite-4.0-h-micro")
    (block,) = (block for block in model.blocks if block.name == "dense-state-space")
    (core,) = (op for op in block.operators if isinstance(op, StateSpace))
    assert not any(isinstance(op, Attention) for op in block.operators)
    assert core.flops_per_token(10.0) == core.flops_per_token(1e6) == 4 * 64 * 64 * 128
    short, long = (block.flops_per_token_forward(length, causal=True) for length in (1024, 2**20))
    assert short == long


def test_a_layers_parameters_are_those_of_the_paper():
    """Projections of 2·width + 2·state + heads and back, filters with biases, three numbers a head, a norm."""
    arch = read(mamba_d_state=10, mamba_d_conv=3)
    hidden, heads = arch.hidden, 4
    block = build_graph(arch).blocks[1]
    found = sum(p.elements for op in block.operators for p in op.parameters if p.name.startswith("mamba."))
    projections = hidden * (2 * WIDTH + 2 * 10 + heads) + WIDTH * hidden
    assert found == projections + (WIDTH + 2 * 10) * (3 + 1) + 3 * heads + WIDTH


def test_b_and_c_enter_the_tensor_region_by_themselves():
    of = sources(build_graph(read()).blocks[1].operators)
    assert of["bc"] == ("input_norm",)
    assert of["enter_attention"] == ("input_norm",)
    assert of["state_space"] == ("heads", "enter_bc")


def test_without_a_word_every_layer_is_a_state_space():
    arch = read()
    assert set(arch.mixers) == {"state-space"}
    assert (arch.state_space.head_dim, arch.state_space.state) == (WIDTH // 4, 256)
    assert arch.positions == "none"


def test_names_of_layers_are_those_of_either_release():
    older = read(layer_types=["mamba", "attention"] * 2)
    newer = read(layer_types=["linear_attention", "full_attention"] * 2)
    assert older.state_space.layers == newer.state_space.layers == (True, False) * 2


def test_layers_with_attention_are_rotated_where_the_file_asks_for_it():
    arch = read(layer_types=["mamba", "attention"] * 2, position_embedding_type="rope")
    assert runnable_numerics(arch).rotary == (None, Rotary(theta=1e4, dim=arch.head_dim)) * 2


def test_filters_do_not_decay():
    assert not is_matrix("layers.0.mamba.x_conv.weight", (8, 1, 4))
    assert is_matrix("layers.0.mamba.x_proj.weight", (8, 4))


@pytest.mark.parametrize(
    "changes",
    [
        {"num_local_experts": 4},
        {"mamba_n_groups": 2},
        {"mamba_proj_bias": True},
        {"layer_types": ["mamba", "attention", "moe", "mamba"]},
    ],
)
def test_what_cannot_be_planned_is_refused_by_name(changes):
    with pytest.raises(UnsupportedError) as caught:
        read(**changes)
    assert [problem.field for problem in caught.value.problems] == list(changes)


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"mamba_n_heads": 5}, ["mamba_n_heads"]),
        ({"mamba_d_head": 3, "mamba_d_state": 0}, ["mamba_n_heads", "mamba_d_state"]),
        ({"layer_types": ["mamba"] * 3}, ["layer_types"]),
    ],
)
def test_wrong_values_are_all_named(changes, fields):
    with pytest.raises(InputError) as caught:
        read(**changes)
    assert [problem.field for problem in caught.value.problems] == fields


@pytest.mark.parametrize("changes", [{"time_step_limit": [0.001, 0.1]}, {"hidden_act": "gelu"}])
def test_what_cannot_be_run_is_refused_by_name(changes):
    with pytest.raises(UnsupportedError) as caught:
        runnable_numerics(read(**changes))
    assert [problem.field for problem in caught.value.problems] == list(changes)


QWEN = {
    **SIZES,
    "model_type": "qwen3_5_moe_text",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 24,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 3,
    "mtp_num_hidden_layers": 1,
}


def test_gated_delta_layers_have_keys_and_queries_of_their_groups():
    """Projections of values, gate, keys, queries and two rates, filters without biases, two numbers a head, a norm."""
    arch = read_architecture(QWEN, "small", "test")
    assert arch.mixers == ("state-space", "state-space", "state-space", "softmax")
    assert arch.left_out == ("mtp_num_hidden_layers = 1: layers that predict further tokens",)
    block = build_graph(arch).blocks[1]
    found = sum(p.elements for op in block.operators for p in op.parameters if p.name.startswith("mamba."))
    values, shared = 4 * 12, 2 * 2 * 8
    projections = arch.hidden * (2 * values + shared + 2 * 4) + values * arch.hidden
    assert found == projections + 3 * (values + shared) + 2 * 4 + 12


def test_several_groups_are_cut_with_their_heads():
    of = {op.name: op for op in build_graph(read_architecture(QWEN, "small", "test")).blocks[1].operators}
    assert "bc" not in of
    assert of["state_space"].reads == ("heads",)
    assert {p.tp_dim for p in of["state_space"].parameters} == {0}
    assert of["state_space"].shared_groups(2) == 1


def test_attention_with_a_gate_projects_it_with_the_queries():
    block = build_graph(read_architecture(QWEN, "small", "test")).blocks[2]
    qkv = next(op for op in block.operators if op.name == "qkv")
    assert qkv.outputs == 16 * (2 * 4 + 2 * 2)


def test_keys_of_gated_delta_layers_serve_as_many_values():
    with pytest.raises(InputError, match="linear_num_value_heads % linear_num_key_heads"):
        read_architecture({**QWEN, "linear_num_key_heads": 3}, "small", "test")
