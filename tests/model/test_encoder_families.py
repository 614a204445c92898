"""Reading T5 and Qwen2.5-VL: what a configuration says, defaults, and everything that is wrong at once."""

from typing import Any

import pytest
from small_decoder_config import SIZES

from meshwright.errors import InputError, UnsupportedError
from meshwright.model.architecture import Architecture
from meshwright.model.encoder import TextEncoder, VisionEncoder
from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.load import load_model
from meshwright.model.named_tensors import runnable_numerics

T5 = {"model_type": "t5", "vocab_size": 97, "d_model": 48, "d_ff": 80, "num_layers": 2, "num_heads": 4}
VISION = {
    "depth": 3,
    "hidden_size": 32,
    "intermediate_size": 20,
    "num_heads": 2,
    "out_hidden_size": 64,
    "patch_size": 7,
    "window_size": 56,
    "fullatt_block_indexes": [0, 2],
}
ROPE = {"type": "mrope", "mrope_section": [2, 3, 3]}
VL = {**SIZES, "model_type": "qwen2_5_vl", "rope_scaling": ROPE, "vision_config": VISION}


def read(config: dict[str, Any]) -> Architecture:
    return read_architecture(config, "test", "here")


def t5(**changes: Any) -> Architecture:
    return read({**T5, **changes})


def vl(**changes: Any) -> Architecture:
    """Qwen2.5-VL with changes to its vision tower."""
    return read({**VL, "vision_config": {**VISION, **changes}})


def problems(config: dict[str, Any]) -> dict[str, str]:
    with pytest.raises((InputError, UnsupportedError)) as caught:
        runnable_numerics(read(config))
    assert all(problem.suggestion for problem in caught.value.problems)
    return {problem.field: problem.rule for problem in caught.value.problems}


def test_t5_has_two_stacks_of_equal_widths() -> None:
    arch = t5(num_decoder_layers=3, d_kv=10)
    assert arch.encoder == TextEncoder(layers=2, buckets=32, max_distance=128)
    assert (arch.layers, arch.heads, arch.kv_heads, arch.head_dim) == (3, 4, 4, 10)
    assert (arch.positions, arch.norm, arch.norm_epsilon) == ("relative", "rmsnorm", 1e-6)
    assert (arch.qkv_bias, arch.mlp_bias, arch.dropout, arch.windows) == (False, False, True, (None,) * 3)
    assert t5().layers == 2
    assert dict(t5().assumed)["n_positions"] == t5().max_positions == 512


def test_a_tied_head_of_t5_is_scaled_and_scores_are_not() -> None:
    tied, own = runnable_numerics(t5()), runnable_numerics(t5(tie_word_embeddings=False))
    assert (tied.logit_divisor, own.logit_divisor) == (48**0.5, 1.0)
    assert tied.attention_scales == (1.0, 1.0)
    assert tied.rotary == (None, None)


@pytest.mark.parametrize(
    ("projection", "gated", "activation"),
    [
        ("relu", False, "relu"),
        ("gelu", False, "gelu"),
        ("gated-gelu", True, "gelu-tanh"),
        ("gated-silu", True, "silu"),
    ],
)
def test_projections_of_t5(projection: str, gated: bool, activation: str) -> None:
    arch = t5(feed_forward_proj=projection)
    assert (arch.gated, runnable_numerics(arch).activation) == (gated, activation)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"feed_forward_proj": "double-gelu"}, "feed_forward_proj"),
        ({"feed_forward_proj": "gated-"}, "feed_forward_proj"),
        ({"feed_forward_proj": "gated-mish"}, "feed_forward_proj"),
        ({"relative_attention_num_buckets": 3}, "relative_attention_num_buckets"),
        ({"relative_attention_max_distance": 16}, "relative_attention_max_distance"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder"),
        ({"scale_decoder_outputs": False}, "scale_decoder_outputs"),
        ({"scale_decoder_outputs": True, "tie_word_embeddings": False}, "scale_decoder_outputs"),
        ({"num_decoder_layers": 0}, "num_decoder_layers"),
    ],
)
def test_what_t5_cannot_have_is_named(changes: dict[str, Any], field: str) -> None:
    assert list(problems({**T5, **changes})) == [field]


def test_missing_sizes_of_t5_are_named_at_once() -> None:
    assert set(problems({"model_type": "t5"})) == {"vocab_size", "d_model", "d_ff", "num_layers", "num_heads"}


def test_a_vision_tower_makes_the_whole_model() -> None:
    arch = vl()
    assert arch.family == "qwen2_5_vl"
    assert arch.encoder == VisionEncoder(
        layers=3,
        hidden=32,
        heads=2,
        intermediate=20,
        patch_elements=3 * 2 * 7 * 7,
        patch_shape=(3, 2, 7, 7),
        merge=2,
        window=8,
        whole_image=(True, False, True),
    )
    assert runnable_numerics(arch).rotary_sections == (2, 3, 3)
    assert ("vision_config.in_channels", 3) in arch.assumed


def test_a_window_is_of_whole_squares() -> None:
    """As transformers rounds: 60 pixels hold four squares of 14, as 56 do."""
    assert vl(window_size=60).encoder == vl().encoder


def test_the_whole_model_in_newer_files() -> None:
    text = {**SIZES, "model_type": "qwen2_5_vl_text", "rope_parameters": {"mrope_section": [2, 3, 3]}}
    whole = read({"model_type": "qwen2_5_vl", "text_config": text, "vision_config": VISION})
    assert (whole.family, whole.encoder) == ("qwen2_5_vl", vl().encoder)
    assert runnable_numerics(whole).rotary_sections == (2, 3, 3)


def test_without_a_vision_tower_it_is_the_text_tower() -> None:
    text = {**SIZES, "model_type": "qwen2_5_vl_text", "rope_scaling": ROPE}
    flat = {key: value for key, value in VL.items() if key != "vision_config"}
    for config in (text, flat, {"model_type": "qwen2_5_vl", "text_config": text}):
        assert read(config).encoder is None
        assert runnable_numerics(read(config)).rotary_sections == ()


def test_the_text_tower_of_another_model_is_read_alone() -> None:
    text = {**SIZES, "model_type": "llama"}
    assert read({"model_type": "llava", "text_config": text, "vision_config": VISION}).encoder is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"out_hidden_size": 63}, "out_hidden_size"),
        ({"hidden_act": "quick_gelu"}, "hidden_act"),
        ({"num_heads": 3}, "num_heads"),
        ({"num_heads": 16}, "num_heads"),
        ({"window_size": 13}, "window_size"),
        ({"fullatt_block_indexes": [3]}, "fullatt_block_indexes"),
        ({"fullatt_block_indexes": [False]}, "fullatt_block_indexes"),
        ({"fullatt_block_indexes": 3}, "fullatt_block_indexes"),
        ({"in_chans": 1}, "in_chans"),
        ({"patch_size": [14, 14]}, "patch_size"),
        ({"depth": "many"}, "depth"),
    ],
)
def test_what_a_vision_tower_cannot_have_is_named(changes: dict[str, Any], field: str) -> None:
    assert list(problems({**VL, "vision_config": {**VISION, **changes}})) == [f"vision_config.{field}"]


def test_problems_of_both_towers_are_told_at_once() -> None:
    text = {**SIZES, "model_type": "qwen2_5_vl_text", "hidden_size": 0}
    found = problems({"model_type": "qwen2_5_vl", "text_config": text, "vision_config": {"depth": 0}})
    assert {"text_config.hidden_size", "vision_config.depth", "vision_config.hidden_size"} <= set(found)
    assert list(problems({**VL, "vision_config": 3})) == ["vision_config"]


@pytest.mark.parametrize(
    ("rope", "field"),
    [
        ({"mrope_section": [2, 3, 4]}, "mrope_section"),
        ({"mrope_section": [4, 4]}, "mrope_section"),
        ({"mrope_section": [0, 4, 4]}, "mrope_section"),
        ({"mrope_section": "2,3,3"}, "mrope_section"),
        ({}, "mrope_section"),
        ({"mrope_section": [2, 3, 3], "mrope_interleaved": True}, "mrope_interleaved"),
    ],
)
def test_sections_are_those_of_a_head(rope: dict[str, Any], field: str) -> None:
    assert list(problems({**VL, "rope_scaling": {"type": "mrope", **rope}})) == [f"rope_scaling.{field}"]


def test_sections_of_released_models() -> None:
    for size in ("3b", "7b", "32b", "72b"):
        assert runnable_numerics(load_model(f"qwen2.5-vl-{size}").architecture).rotary_sections == (
            16,
            24,
            24,
        )
