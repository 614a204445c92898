"""Whose results operators read: residuals, routed layers with shared experts, latent attention."""

from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.operators.blocks import build_graph
from meshwright.model.operators.data_flow import ENTRY, number_of_users, sources, users

SIZES = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 128,
}
LATENT = {
    "q_lora_rank": 20,
    "kv_lora_rank": 12,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "n_shared_experts": 1,
    "first_k_dense_replace": 0,
}


def layer(model_type, **changes):
    config = {"model_type": model_type, **SIZES, **changes}
    return build_graph(read_architecture(config, "small", "test")).blocks[1].operators


def test_a_residual_adds_its_branch_to_what_stood_before_the_branch():
    found = sources(layer("llama"))
    assert found["input_norm"] == (ENTRY,)
    assert found["attention_residual"] == ("leave_attention", ENTRY)
    assert found["ffn_norm"] == ("attention_residual",)
    assert found["ffn_residual"] == ("leave_ffn", "attention_residual")


def test_router_and_shared_experts_read_the_same_norm():
    chain = layer("qwen2_moe", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=24)
    found = sources(chain)
    assert found["router"] == found["shared_gate"] == found["enter_shared"] == ("ffn_norm",)
    assert found["dispatch"] == ("ffn_norm", "router")
    assert found["combine"] == ("expert_down", "leave_shared", "shared_gate")
    assert [op.name for op in users(chain)["ffn_norm"]] == ["shared_up", "shared_gate", "router", "dispatch"]


def test_latent_attention_has_two_ways_through_its_edge():
    chain = layer("deepseek_v3", **LATENT)
    found = sources(chain)
    assert found["q_a"] == found["kv_a"] == ("input_norm",)
    assert found["enter_attention"] == ("q_a_norm", "kv_a_norm")
    assert found["q_b"] == found["kv_b"] == ("enter_attention",)
    assert found["attention"] == ("q_b", "kv_b")
    plain = sources(layer("deepseek_v3", **LATENT | {"q_lora_rank": None}))
    assert plain["enter_attention"] == ("input_norm", "kv_a_norm")


def test_every_result_of_a_block_is_read():
    for chain in (
        layer("llama"),
        layer("mixtral", num_local_experts=4, num_experts_per_tok=2),
        layer("deepseek_v3", **LATENT),
    ):
        numbers = number_of_users(chain)
        assert numbers.keys() == {ENTRY, *(op.name for op in chain)}
        assert all(numbers.values())
