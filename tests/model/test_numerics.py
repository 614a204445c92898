"""Reading what a decoder computes: families' defaults, all refusals by name, and none of them hinders planning."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_decoder_config import SIZES

from meshwright.errors import InputError, UnsupportedError
from meshwright.model.architecture import Architecture
from meshwright.model.describe import describe_model
from meshwright.model.families.architecture_table import FAMILIES, read_architecture
from meshwright.model.families.numerics_table import FAMILY_NUMERICS
from meshwright.model.load import load_model
from meshwright.model.named_tensors import named_parameters, runnable_numerics
from meshwright.model.numerics import UNKNOWN, Mixing, Numerics, QueryGrowth
from meshwright.model.operators.blocks import build_graph
from meshwright.model.rotary import Llama3, Rotary, Yarn
from meshwright.model.transforms.lora_adapters import with_adapters
from meshwright.model.zoo_names import zoo_names

TINY = {"model_type": "llama", **SIZES}


def read(**changes: Any) -> Architecture:
    return read_architecture({**TINY, **changes}, "test", "here")


def numerics(**changes: Any) -> Numerics:
    return runnable_numerics(read(**changes))


def refused(**changes: Any) -> dict[str, str]:
    """Fields and rules of what cannot be run; the model can be planned in any case."""
    arch = read(**changes)
    describe_model(build_graph(arch))
    hash(arch)
    with pytest.raises(UnsupportedError) as caught:
        runnable_numerics(arch)
    assert all(problem.suggestion for problem in caught.value.problems)
    return {problem.field: problem.rule for problem in caught.value.problems}


def test_a_plain_decoder():
    assert numerics() == Numerics(
        activation="silu",
        rotary=(Rotary(theta=10000.0, dim=16),) * 4,
        attention_scales=(0.25,) * 4,
    )


def test_the_arithmetic_of_every_zoo_model_is_known_or_refused_by_its_family():
    for name in zoo_names():
        arch = load_model(name).architecture
        if arch.family not in FAMILY_NUMERICS:
            assert [problem.field for problem in arch.numerics.refused] == ["model_type"]
            continue
        found = runnable_numerics(arch)
        assert len(found.rotary) == len(found.attention_scales) == arch.layers
        assert (found.routing is None) == (arch.moe is None)


def test_a_family_that_is_planned_only_says_so():
    moe = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
    found = refused(model_type="qwen3_vl_moe_text", **moe)
    assert found == {"model_type": "models of type qwen3_vl_moe_text can be planned, not run yet"}


def test_every_family_with_arithmetic_has_shapes():
    assert FAMILY_NUMERICS.keys() <= FAMILIES.keys()


def test_llama_3_is_read_from_the_zoo():
    rotary = runnable_numerics(load_model("llama-3.1-8b").architecture).rotary[0]
    scaling = Llama3(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_positions=8192)
    assert rotary == Rotary(theta=500000.0, dim=128, scaling=scaling)


def test_gemma_2_divides_scores_by_a_scalar_of_its_own():
    of_27b = runnable_numerics(load_model("gemma-2-27b").architecture)
    assert of_27b.attention_scales[0] == pytest.approx(144**-0.5)  # not the head's 128
    assert (of_27b.attention_soft_cap, of_27b.logit_soft_cap) == (50.0, 30.0)
    assert (of_27b.embedding_multiplier, of_27b.norm_offset) == (4608**0.5, 1.0)


def test_gemma_has_neither_caps_nor_a_scalar_of_its_own():
    gemma = numerics(model_type="gemma", query_pre_attn_scalar=7.0, final_logit_softcapping=30.0)
    assert gemma.attention_scales[0] == pytest.approx(256**-0.5)
    assert (gemma.attention_soft_cap, gemma.logit_soft_cap, gemma.norm_offset) == (None, None, 1.0)


def test_a_null_switches_a_cap_off():
    off = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    gemma = numerics(model_type="gemma2", **off)
    assert (gemma.attention_soft_cap, gemma.logit_soft_cap) == (None, None)


def test_gemma_3_rotates_near_and_far_layers_differently():
    scaling = {"rope_type": "linear", "factor": 8.0}
    gemma = numerics(model_type="gemma3_text", sliding_window_pattern=2, rope_scaling=scaling)
    thetas = [rotary.theta for rotary in gemma.rotary if rotary]
    assert thetas == [10000.0, 1000000.0, 10000.0, 1000000.0]
    assert [rotary.scaling is None for rotary in gemma.rotary if rotary] == [True, False, True, False]


def test_smollm3_leaves_every_fourth_layer_without_a_rotation():
    assert [rotary is None for rotary in numerics(model_type="smollm3").rotary] == [False, False, False, True]
    chosen = numerics(model_type="smollm3", no_rope_layers=[0, 1, 1, 0])
    assert [rotary is None for rotary in chosen.rotary] == [True, False, False, True]


def test_ministral_3_without_a_word_on_rotation_is_yarn_by_sixteen():
    ministral = numerics(model_type="ministral3")
    scaling = Yarn(factor=16.0, original_positions=16384, mscale=1.0, mscale_all_dim=1.0)
    assert ministral.rotary[0] == Rotary(theta=1e6, dim=128, scaling=scaling)
    assert ministral.query_growth == QueryGrowth(beta=0.1, positions=16384)


def test_glm_4_rotates_half_of_each_head_in_neighbours():
    assert numerics(model_type="glm4", head_dim=32).rotary[0] == Rotary(
        theta=10000.0, dim=16, interleaved=True
    )


def test_stablelm_rotates_a_quarter_of_each_head():
    rotary = numerics(model_type="stablelm", num_key_value_heads=4, head_dim=32).rotary[0]
    assert rotary == Rotary(theta=10000.0, dim=8)


def test_ernie_rotates_whole_heads_in_neighbours():
    assert numerics(model_type="ernie4_5", head_dim=32).rotary[0] == Rotary(
        theta=500000.0, dim=32, interleaved=True
    )


def test_granite_has_four_multipliers():
    keys = ("attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling")
    granite = numerics(model_type="granite", **dict(zip(keys, (0.1, 2.0, 0.3, 4.0), strict=True)))
    assert granite.attention_scales == (0.1,) * 4
    assert granite.embedding_multiplier == 2.0
    assert granite.attention_mixing == (Mixing(part=0.3),) * 4
    assert granite.feedforward_mixing == Mixing(part=0.3)
    assert (granite.logit_divisor, granite.embedding_multiplier_rounded) == (4.0, False)


def test_gpt_2_may_divide_scores_by_the_number_of_the_layer():
    gpt = {"model_type": "gpt2", "vocab_size": 9, "n_embd": 16, "n_layer": 3, "n_head": 4}
    deeper = {**gpt, "scale_attn_by_inverse_layer_idx": True}
    assert numerics(**deeper).attention_scales == (1 / 2, 1 / 4, 1 / 6)
    assert numerics(**gpt, scale_attn_weights=False).attention_scales == (1.0,) * 3


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"hidden_act": "mish"}, "hidden_act"),
        ({"head_dim": 15}, "rope_parameters.partial_rotary_factor"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_theta": 0.5}, "rope_parameters.rope_theta"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_scaling.rope_type"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor"),
        ({"rope_scaling": {"type": "linear", "factor": -1}}, "rope_scaling.factor"),
        ({"rope_scaling": 3}, "rope_scaling"),
        ({"rope_scaling": {"x": 1}, "rope_parameters": {"y": 1}}, "rope_scaling"),
        ({"rope_parameters": {"full_attention": {}}}, "rope_parameters.full_attention"),
        (
            {
                "rope_scaling": {
                    "type": "llama3",
                    "factor": 8,
                    "low_freq_factor": 4,
                    "high_freq_factor": 4,
                }
            },
            "rope_scaling.high_freq_factor",
        ),
        ({"model_type": "phi3", "partial_rotary_factor": 1.5}, "partial_rotary_factor"),
        ({"model_type": "gemma2", "use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"model_type": "gemma3_text", "attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ({"model_type": "gemma3_text", "rope_parameters": {"rope_theta": 5.0}}, "rope_parameters"),
        ({"model_type": "smollm3", "no_rope_layers": [1]}, "no_rope_layers"),
        (
            {"model_type": "ministral3", "rope_parameters": {"rope_theta": 1e6}},
            "rope_parameters.llama_4_scaling_beta",
        ),
        (
            {
                "original_max_position_embeddings": 64,
                "rope_scaling": {"type": "yarn", "original_max_position_embeddings": 32},
            },
            "original_max_position_embeddings",
        ),
    ],
)
def test_what_cannot_be_run_is_named_and_can_be_planned(changes, field):
    assert set(refused(**changes)) == {field}


def test_olmo_has_norms_without_weights_and_clips_nothing():
    arch = read(model_type="olmo", rms_norm_eps=0.5)
    assert (arch.norm, arch.norm_epsilon) == ("bare-layernorm", 1e-5)
    assert not [name for name in named_parameters(build_graph(arch)) if "norm" in name]
    assert set(refused(model_type="olmo", clip_qkv=8.0)) == {"clip_qkv"}


def test_bloom_with_its_residual_after_the_norm_is_refused():
    bloom = {"model_type": "bloom", "vocab_size": 9, "hidden_size": 16, "n_layer": 1, "n_head": 4}
    key = "apply_residual_connection_post_layernorm"
    assert set(refused(**bloom, **{key: True})) == {key}


def test_longrope_needs_a_factor_for_each_pair():
    lists = {"type": "longrope", "short_factor": [1.0] * 7, "long_factor": [1.0] * 8}
    found = refused(model_type="phi3", rope_scaling=lists)
    assert found == {"rope_scaling.short_factor": "short_factor must hold dim/2 = 8 numbers > 0"}


def test_all_that_cannot_be_run_is_told_at_once():
    found = refused(hidden_act="mish", rope_scaling={"type": "dynamic"}, partial_rotary_factor=0.5)
    assert set(found) == {"hidden_act", "rope_scaling.rope_type", "partial_rotary_factor"}


def test_a_model_without_a_configuration_is_not_run():
    with pytest.raises(UnsupportedError, match="its arithmetic is not known"):
        runnable_numerics(replace(read(), numerics=UNKNOWN))


def test_every_parameter_has_one_name():
    for name in ("llama-3.2-1b", "bloom-176b", "qwen3-8b"):
        model = load_model(name)
        parameters = named_parameters(model)
        assert sum(parameter.elements for parameter in parameters.values()) == model.parameters
        assert ("head.lm_head.weight" in parameters) != model.architecture.tied_embeddings


def test_a_model_with_adapters_is_planned_only():
    with pytest.raises(UnsupportedError, match="adapters of no written form"):
        named_parameters(with_adapters(load_model("llama-3.2-1b")))


VALUES = st.one_of(
    st.sampled_from([None, True, 0, 1, 2, -1, 2**40, 10**30, 0.5, -0.5, 1e308, 1e-320, float("nan")]),
    st.sampled_from(
        ["", "gelu", "linear", "llama3", "yarn", "longrope", "dynamic", [], [1.0] * 8, [None], {}]
    ),
)
KEYS = st.sampled_from(
    [
        "hidden_act",
        "head_dim",
        "num_attention_heads",
        "max_position_embeddings",
        "partial_rotary_factor",
        "original_max_position_embeddings",
        "rope_theta",
        "rope_local_base_freq",
        "attn_logit_softcapping",
        "query_pre_attn_scalar",
        "attention_multiplier",
        "no_rope_layers",
        "no_rope_layer_interval",
    ]
)
ROPE_KEYS = st.sampled_from(
    [
        "rope_type",
        "rope_theta",
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "beta_fast",
        "mscale",
        "truncate",
        "attention_factor",
        "short_factor",
        "long_factor",
        "original_max_position_embeddings",
        "llama_4_scaling_beta",
    ]
)


@settings(deadline=None, max_examples=200)
@given(
    family=st.sampled_from(sorted(FAMILY_NUMERICS)),
    changes=st.dictionaries(KEYS, VALUES, max_size=3),
    rope=st.dictionaries(ROPE_KEYS, VALUES, max_size=5),
    place=st.sampled_from(["rope_scaling", "rope_parameters"]),
)
def test_what_is_not_refused_can_be_computed(family, changes, rope, place):
    sizes = {**TINY, "n_embd": 64, "n_layer": 4, "n_head": 4, "model_type": family}
    try:
        arch = read_architecture({**sizes, **changes, place: rope}, "test", "here")
        found = runnable_numerics(arch)
    except InputError:
        return
    hash(arch)
    for rotary in found.rotary:
        if rotary is not None and rotary.dim < 2**20:
            assert rotary.attention_factor >= 0
            assert len(rotary.frequencies(1000)) == rotary.dim // 2
