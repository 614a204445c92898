"""Tiny models of every family that can be run, with unlike sizes and every kind of rotation.

``tiny("qwen3")`` is a graph; names are a family, or a family and what is special. Windows and original lengths are
shorter than ``LENGTH``. Configurations are complete enough for transformers to build the same model.
"""

from functools import cache
from typing import Any

from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.graph import ModelGraph
from meshwright.model.operators.blocks import build_graph

LENGTH = 24
TEXT_TOKENS = 90
"""Token ids below it are words in every model."""

SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
OLD_SIZES = {"vocab_size": 97, "n_layer": 3, "n_head": 6}
GPT2 = {**OLD_SIZES, "model_type": "gpt2", "n_embd": 48, "n_positions": 32, "n_inner": 100}
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
VISION = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "out_hidden_size": 48,
    "patch_size": 4,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0],
    "fullatt_block_indexes": [0],
}
SIGLIP = {
    "model_type": "siglip_vision_model",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 4.0,
    "beta_fast": 2.0,
    "beta_slow": 0.5,
    "original_max_position_embeddings": 16,
}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [1.0, 2.0, 3.5, 5.0],
}
GROWTH = {"llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 0.5}
GRANITE = {
    "attention_multiplier": 0.4,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.7,
    "logits_scaling": 5.0,
}
MAMBA = {
    "shared_intermediate_size": 80,
    "num_local_experts": 0,
    "layer_types": ["mamba", "attention", "mamba"],
    "mamba_n_heads": 8,
    "mamba_d_head": 12,
    "mamba_d_state": 10,
    "mamba_chunk_size": 5,
}
CAPS = {"attn_logit_softcapping": 0.5, "final_logit_softcapping": 2.0}
LATENT = {
    "q_lora_rank": 24,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "num_key_value_heads": 4,
}
SHARED = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 28,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}
NEAR_AND_FAR = {
    "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
}


def _text(model_type: str, **changes: Any) -> dict[str, Any]:
    return {"model_type": model_type, **SIZES, **changes}


def _tower(
    model_type: str, vision: dict[str, Any], tie_word_embeddings: bool, **changes: Any
) -> dict[str, Any]:
    """A vision-language model whose text tower is what we read; its special tokens are above ``TEXT_TOKENS``."""
    special = ("image", "video", "vision_start", "vision_end", "boi", "eoi")
    return {
        "model_type": model_type,
        "text_config": _text(f"{model_type}_text", **changes),
        "vision_config": vision,
        "tie_word_embeddings": tie_word_embeddings,
        **{f"{kind}_token_id": TEXT_TOKENS + at for at, kind in enumerate(special)},
    }


TINY: dict[str, dict[str, Any]] = {
    "bloom": {**OLD_SIZES, "model_type": "bloom", "hidden_size": 48},
    "deepseek_v2": _text(
        "deepseek_v2",
        **{**SHARED, **LATENT},
        n_group=4,
        topk_group=2,
        topk_method="group_limited_greedy",
        routed_scaling_factor=1.5,
        rope_parameters={**YARN, "mscale": 1.0, "mscale_all_dim": 0.7},
    ),
    "deepseek_v2 greedy": _text(
        "deepseek_v2",
        **{**SHARED, **LATENT, "q_lora_rank": None, "first_k_dense_replace": 0},
        attention_bias=True,
        rope_theta=100.0,
    ),
    "deepseek_v3": _text(
        "deepseek_v3",
        **{**SHARED, **LATENT},
        n_group=4,
        topk_group=2,
        rope_scaling={**YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    ),
    "deepseek_v3 direct": _text(
        "deepseek_v3",
        **{**SHARED, **LATENT, "q_lora_rank": None},
        n_group=1,
        topk_group=1,
        norm_topk_prob=False,
        rope_interleave=False,
        attention_bias=True,
        rope_theta=100.0,
        tie_word_embeddings=True,
    ),
    "dots1": _text("dots1", **SHARED, norm_topk_prob=True, sliding_window=5, max_window_layers=1),
    "ernie4_5": _text("ernie4_5", head_dim=16, rope_theta=100.0),
    "ernie4_5 biases": _text("ernie4_5", head_dim=16, use_bias=True, tie_word_embeddings=False),
    "gemma": _text("gemma", head_dim=16, num_key_value_heads=1),
    "gemma2": _text("gemma2", head_dim=16, sliding_window=5, query_pre_attn_scalar=20, **CAPS),
    "gemma2 uncapped": _text(
        "gemma2",
        head_dim=8,
        sliding_window=5,
        attn_logit_softcapping=None,
        final_logit_softcapping=None,
        tie_word_embeddings=False,
        attention_bias=True,
    ),
    "gemma3_text": _text(
        "gemma3_text",
        head_dim=16,
        sliding_window=5,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        query_pre_attn_scalar=20,
        rope_parameters=NEAR_AND_FAR,
    ),
    "gemma3_text older keys": _text(
        "gemma3_text",
        head_dim=16,
        sliding_window=5,
        sliding_window_pattern=2,
        rope_theta=5000.0,
        rope_local_base_freq=50.0,
        rope_scaling={"rope_type": "linear", "factor": 4.0},
        final_logit_softcapping=2.0,
    ),
    "gemma3_text tower": _tower("gemma3", SIGLIP, True, head_dim=16, sliding_window=5),
    "glm": _text("glm", head_dim=16),
    "glm4": _text("glm4", head_dim=16),
    "glm4_moe": _text("glm4_moe", **SHARED, use_qk_norm=True, attention_bias=True, head_dim=16),
    "glm4_moe plain": _text("glm4_moe", **SHARED, partial_rotary_factor=1.0, routed_scaling_factor=2.0),
    "gpt2": {**GPT2, **NO_DROPOUT},
    "gpt2 untied": {**GPT2, **NO_DROPOUT, "tie_word_embeddings": False, "activation_function": "gelu"},
    "gpt2 scales": {**GPT2, **NO_DROPOUT, "scale_attn_by_inverse_layer_idx": True},
    "gpt_oss": _text(
        "gpt_oss", head_dim=16, num_local_experts=6, num_experts_per_tok=3, sliding_window=5, swiglu_limit=0.5
    ),
    "gpt_oss unbiased": _text(
        "gpt_oss",
        head_dim=16,
        num_local_experts=4,
        num_experts_per_tok=2,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        sliding_window=5,
        attention_bias=False,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
    ),
    "granite": _text("granite", **GRANITE),
    "granitemoehybrid": _text("granitemoehybrid", **GRANITE, **MAMBA, tie_word_embeddings=True),
    "granitemoehybrid rotated": _text(
        "granitemoehybrid",
        **{**GRANITE, **MAMBA, "layer_types": ["mamba", "attention", "attention"]},
        position_embedding_type="rope",
        rope_theta=100.0,
        mamba_conv_bias=False,
        attention_bias=True,
    ),
    "llama": _text("llama"),
    "llama biases": _text(
        "llama", attention_bias=True, mlp_bias=True, head_dim=20, tie_word_embeddings=True, hidden_act="relu"
    ),
    "llama linear": _text("llama", rope_theta=100.0, rope_scaling={"type": "linear", "factor": 4.0}),
    "llama llama3": _text("llama", rope_parameters=LLAMA3),
    "llama yarn": _text("llama", rope_parameters=YARN),
    "llama yarn defaults": _text("llama", rope_parameters={"rope_type": "yarn", "factor": 4.0}),
    "llama yarn factor": _text(
        "llama", rope_parameters={**YARN, "attention_factor": 1.25, "truncate": False}
    ),
    "minimax": _text(
        "minimax",
        head_dim=16,
        num_local_experts=6,
        num_experts_per_tok=2,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        block_size=5,
        rope_theta=100.0,
        full_attn_alpha_factor=1.3,
        linear_attn_alpha_factor=1.6,
        linear_attn_beta_factor=0.8,
        mlp_alpha_factor=1.4,
        mlp_beta_factor=0.7,
    ),
    "minimax alternating": _text(
        "minimax", num_local_experts=4, num_experts_per_tok=2, num_key_value_heads=4, sliding_window=5
    ),
    "ministral3": _text("ministral3", head_dim=20, rope_parameters={**YARN, **GROWTH}),
    "ministral3 defaults": _text("ministral3", head_dim=20),
    "mistral": _text("mistral", head_dim=20, sliding_window=5),
    "mixtral": _text(
        "mixtral", num_local_experts=6, num_experts_per_tok=2, sliding_window=5, rope_theta=100.0
    ),
    "olmo": _text("olmo", rope_theta=100.0, tie_word_embeddings=True),
    "olmo untied": _text("olmo", attention_bias=True),
    "phi3": _text("phi3", sliding_window=5),
    "phi3 longrope": _text(
        "phi3",
        head_dim=12,
        original_max_position_embeddings=16,
        partial_rotary_factor=0.7,
        rope_scaling={**LONGROPE, "original_max_position_embeddings": 16},
    ),
    "phi3 longrope short": _text(
        "phi3",
        original_max_position_embeddings=32,
        partial_rotary_factor=0.7,
        rope_scaling={**LONGROPE, "original_max_position_embeddings": 32},
    ),
    "qwen2": _text("qwen2", use_sliding_window=True, sliding_window=5, max_window_layers=1),
    "qwen2_5_vl_text": _tower(
        "qwen2_5_vl",
        VISION,
        False,
        rope_scaling={"type": "mrope", "mrope_section": [2, 2, 2]},
        rope_theta=100.0,
    ),
    "qwen2_moe": _text(
        "qwen2_moe",
        num_experts=6,
        num_experts_per_tok=3,
        moe_intermediate_size=28,
        shared_expert_intermediate_size=36,
        mlp_only_layers=[0],
    ),
    "qwen3": _text("qwen3", head_dim=16, tie_word_embeddings=True),
    "qwen3 yarn": _text("qwen3", head_dim=16, attention_bias=True, rope_scaling=YARN),
    "qwen3_moe": _text(
        "qwen3_moe",
        head_dim=16,
        num_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=28,
        norm_topk_prob=True,
        decoder_sparse_step=2,
    ),
    "qwen3_vl_text": _tower(
        "qwen3_vl",
        VISION,
        True,
        head_dim=16,
        rope_scaling={"rope_type": "default", "mrope_interleaved": True, "mrope_section": [4, 2, 2]},
        rope_theta=100.0,
    ),
    "smollm3": _text("smollm3", no_rope_layer_interval=2),
    "smollm3 list": _text("smollm3", no_rope_layers=[0, 1, 1], tie_word_embeddings=False),
    "stablelm": _text("stablelm", partial_rotary_factor=0.5, rope_theta=100.0),
    "stablelm biases": _text("stablelm", use_qkv_bias=True, partial_rotary_factor=0.5),
    "starcoder2": _text("starcoder2", sliding_window=5),
    "starcoder2 without biases": _text("starcoder2", use_bias=False, tie_word_embeddings=False),
}


def plain_names() -> list[str]:
    """One tiny model for each family, the one that has the family's own name."""
    return [name for name in TINY if " " not in name]


@cache
def dense_names() -> tuple[str, ...]:
    """Those without experts."""
    return tuple(name for name in plain_names() if tiny(name).architecture.moe is None)


def tiny_config(name: str, **changes: Any) -> dict[str, Any]:
    """A configuration with ``changes`` to the keys of its text model."""
    config = TINY[name]
    if "text_config" in config:
        return {**config, "text_config": {**config["text_config"], **changes}}
    return {**config, **changes}


def tiny(name: str, **changes: Any) -> ModelGraph:
    """The graph of a tiny model, with ``changes`` to the keys of its text model."""
    config = tiny_config(name, **changes)
    if name == "qwen2_5_vl_text":  # the whole model is read if the file has a vision tower
        config = {key: value for key, value in config.items() if key != "vision_config"}
    return build_graph(read_architecture(config, f"tiny {name}", "tiny_models.py"))
