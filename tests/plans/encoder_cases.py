"""Models with an encoder: T5 small, and Qwen2.5-VL 3B with fewer layers."""

from functools import cache

from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.graph import ModelGraph
from meshwright.model.operators.blocks import build_graph

T5 = {
    "model_type": "t5",
    "vocab_size": 32128,
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 6,
    "num_heads": 8,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "dropout_rate": 0.0,
}
VL = {
    "model_type": "qwen2_5_vl",
    "image_token_id": 151655,
    "tie_word_embeddings": True,
    "text_config": {
        "model_type": "qwen2_5_vl_text",
        "vocab_size": 151936,
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_hidden_layers": 8,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "max_position_embeddings": 128000,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
    },
    "vision_config": {
        "depth": 4,
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "out_hidden_size": 2048,
        "patch_size": 14,
        "temporal_patch_size": 2,
        "window_size": 112,
        "spatial_merge_size": 2,
        "fullatt_block_indexes": [1, 3],
    },
}
CONFIGS = {"t5": T5, "vl": VL}
INPUTS = {"t5": {"encoder_tokens": 512}, "vl": {"images": {"per_sequence": 2, "tokens": 1024}}}


@cache
def encoder_model(name: str) -> ModelGraph:
    return build_graph(read_architecture(CONFIGS[name], name, "here"))
