"""Checkpoints of tiny models, and the same models in the words of megatron-core."""

import json

import torch
from checkpoint_runs import FACTS, on_ranks
from local_plans import small
from tiny_models import LENGTH, TEXT_TOKENS, tiny, tiny_config

from meshwright.runtime.checkpoint import save_checkpoint

FACTS_WITH_RATES = FACTS | {"options": {"lr": 1e-3, "lr_floor": 0.1, "steps": 10, "schedule": "cosine"}}
SPLIT = {"tp": 2, "dp_shard": 2, "sharding": "zero1"}


def saved_run(folder, family, precision="fp32", **plan):
    """A checkpoint of two steps of a tiny model under a plan of four ranks."""
    case = small(tiny(family), **(plan or SPLIT))

    def work(rank, steps):
        steps((1, 2))
        return save_checkpoint(folder, rank, FACTS_WITH_RATES)

    return on_ranks(case, work, precision)[0]


def config_of(folder, family):
    """The folder of a tiny model's configuration, as ``--model`` takes it."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(tiny_config(family)), encoding="utf-8")
    return str(folder)


def reader_job(family):
    """The model for megatron-core, and tokens."""
    arch = tiny(family).architecture
    config = {
        "num_layers": arch.layers,
        "hidden_size": arch.hidden,
        "num_attention_heads": arch.heads,
        "num_query_groups": arch.kv_heads,
        "kv_channels": arch.head_dim,
        "ffn_hidden_size": arch.intermediate or 4 * arch.hidden,
        "gated_linear_unit": arch.gated,
        "activation_func": "silu" if arch.gated else "gelu-tanh",
        "normalization": "LayerNorm" if arch.centred_norms else "RMSNorm",
        "layernorm_epsilon": arch.norm_epsilon,
        "add_bias_linear": arch.output_bias,
        "add_qkv_bias": arch.qkv_bias,
        "qk_layernorm": arch.qk_norm,
    }
    if any(arch.windows):
        (width,) = {window for window in arch.windows if window is not None}
        config |= {"window_size": [width - 1, 0]}
    if arch.moe is not None:
        config |= {
            "num_moe_experts": arch.moe.experts,
            "moe_router_topk": arch.moe.experts_per_token,
            "moe_ffn_hidden_size": arch.moe.intermediate,
        }
        if not all(arch.moe.layers):
            config |= {"moe_layer_freq": [int(routed) for routed in arch.moe.layers]}
    model = {
        "vocab_size": 128,
        "max_sequence_length": arch.max_positions,
        "position_embedding_type": "learned_absolute" if arch.positions == "learned" else "rope",
        "share_embeddings_and_output_weights": arch.tied_embeddings,
        "rotary_base": int(arch.rope_theta),
    }
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, TEXT_TOKENS, (2, LENGTH), generator=generator)
    return {"config": config, "model": model, "tokens": tokens.tolist()}
