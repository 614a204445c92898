"""Reading configurations: defaults, every problem at once, refusals by name, no other error on any input."""

import json
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import InputError, UnsupportedError
from meshwright.model.architecture import Architecture
from meshwright.model.describe import describe_model
from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.load import load_model
from meshwright.model.operators.blocks import build_graph
from meshwright.model.operators.operator_types import Norm
from meshwright.model.zoo_names import zoo_names

TINY = {
    "model_type": "llama",
    "vocab_size": 320,
    "hidden_size": 96,
    "intermediate_size": 208,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}
TINY_MOE = {
    **TINY,
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 56,
    "num_experts": 8,
    "num_experts_per_tok": 2,
}
TINY_LATENT = {
    **TINY_MOE,
    "model_type": "deepseek_v3",
    "n_routed_experts": 8,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
}


def zoo_config(name: str) -> dict[str, Any]:
    return json.loads(files("meshwright.model").joinpath("zoo", f"{name}.json").read_text())


def read(config: dict[str, Any]) -> Architecture:
    return read_architecture(config, "test", "here")


def problems(config: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InputError) as caught:
        read(config)
    assert all(problem.suggestion for problem in caught.value.problems)
    return {problem.field: problem.rule for problem in caught.value.problems}


def test_absent_keys_take_the_family_default_and_say_so() -> None:
    arch = read(TINY)
    assert (arch.name, arch.family, arch.source) == ("test", "llama", "here")
    assert (arch.head_dim, arch.activation, arch.tied_embeddings) == (16, "silu", False)
    assert dict(arch.assumed)["head_dim"] == 16
    assert "hidden_size" not in dict(arch.assumed)


def test_null_key_value_heads_mean_all_heads() -> None:
    assert read({**TINY, "num_key_value_heads": None}).kv_heads == 6


def test_all_problems_at_once() -> None:
    found = problems(
        {
            "model_type": "llama",
            "vocab_size": "320",
            "hidden_size": -96,
            "intermediate_size": 2**41,
            "num_hidden_layers": 2.0,
            "num_key_value_heads": True,
            "attention_bias": "yes",
            "rms_norm_eps": float("nan"),
            "hidden_act": 3,
            "rope_parameters": [],
        }
    )
    assert found == {
        "vocab_size": "vocab_size must be a whole number",
        "hidden_size": "1 <= hidden_size <= 1099511627776",
        "intermediate_size": "1 <= intermediate_size <= 1099511627776",
        "num_hidden_layers": "num_hidden_layers must be a whole number",
        "num_attention_heads": "num_attention_heads is missing",
        "num_key_value_heads": "num_key_value_heads must be a whole number",
        "attention_bias": "attention_bias must be true or false",
        "rms_norm_eps": "rms_norm_eps must be a finite number <= 2**40",
        "hidden_act": "hidden_act must be a non-empty string",
        "rope_parameters": "rope_parameters must be an object",
    }


def test_rules_between_sizes_have_their_equation_filled_in() -> None:
    assert problems({**TINY, "num_attention_heads": 10, "num_key_value_heads": 4}) == {
        "num_attention_heads": "hidden_size % num_attention_heads = 96 % 10 = 6, must be 0",
        "num_key_value_heads": "num_attention_heads % num_key_value_heads = 10 % 4 = 2, must be 0",
    }
    assert problems({**TINY_MOE, "num_experts_per_tok": 9}) == {
        "num_experts_per_tok": "num_experts_per_tok = 9 <= experts = 8"
    }
    assert problems({**TINY_LATENT, "first_k_dense_replace": 5}) == {
        "first_k_dense_replace": "first_k_dense_replace = 5 <= num_hidden_layers = 4"
    }
    assert problems({**TINY_MOE, "mlp_only_layers": [4]}) == {
        "mlp_only_layers": "mlp_only_layers must hold layer numbers in 0..3"
    }


def test_gpt2_heads_divide_the_width() -> None:
    found = problems({"model_type": "gpt2", "vocab_size": 9, "n_embd": 10, "n_layer": 1, "n_head": 3})
    assert found == {"n_head": "hidden_size % n_head = 10 % 3 = 1, must be 0"}


def test_unknown_family_names_near_ones() -> None:
    with pytest.raises(UnsupportedError, match="did you mean qwen3"):
        read({**TINY, "model_type": "qwen3_next"})


def test_missing_family() -> None:
    assert problems({"hidden_size": 1}) == {"model_type": "model_type is missing"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (
            {"model_type": "gpt2", "n_embd": 96, "n_layer": 1, "n_head": 6, "add_cross_attention": True},
            "add_cross",
        ),
        ({"model_type": "qwen3", "layer_types": ["linear_attention"] * 4}, "layer_types"),
        ({"model_type": "smollm3", "use_sliding_window": True}, "use_sliding_window"),
        ({"model_type": "stablelm", "use_parallel_residual": True}, "use_parallel_residual"),
        ({"model_type": "stablelm", "qk_layernorm": True}, "qk_layernorm"),
    ],
)
def test_unsupported_features_are_refused_by_name(change: dict[str, Any], field: str) -> None:
    with pytest.raises(UnsupportedError, match=field):
        read({**TINY, **change})


def test_layers_that_are_routed_every_other_time_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="moe_layer_freq = 2"):
        read({**TINY_LATENT, "moe_layer_freq": 2})


def test_wrong_and_unsupported_together_are_all_told() -> None:
    with pytest.raises(InputError) as caught:
        read({**TINY, "model_type": "qwen3", "layer_types": ["linear_attention"]})
    assert [problem.rule for problem in caught.value.problems] == [
        "len(layer_types) = 1 must be num_hidden_layers = 4",
        "layers of type linear_attention are not supported",
    ]
    assert not isinstance(caught.value, UnsupportedError)


@pytest.mark.parametrize(
    ("config", "windows"),
    [
        ({"model_type": "mistral"}, (4096,) * 4),
        ({"model_type": "mistral", "sliding_window": None}, (None,) * 4),
        ({"model_type": "gemma2"}, (4096, None, 4096, None)),
        (
            {"model_type": "gemma3_text", "sliding_window": 64, "sliding_window_pattern": 3},
            (64, 64, None, 64),
        ),
        ({"model_type": "qwen2", "sliding_window": 64}, (None,) * 4),
        (
            {"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": True, "max_window_layers": 3},
            (None, None, None, 64),
        ),
        (
            {"model_type": "gemma2", "layer_types": ["full_attention"] * 3 + ["sliding_attention"]},
            (None, None, None, 4096),
        ),
    ],
)
def test_windows(config: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    assert read({**TINY, **config}).windows == windows


def test_routed_layers() -> None:
    arch = read({**TINY_MOE, "decoder_sparse_step": 2, "mlp_only_layers": [3]})
    assert arch.moe is not None
    assert arch.moe.layers == (False, True, False, False)
    assert arch.intermediate == 208
    whole = read(TINY_MOE)
    assert whole.moe is not None
    assert (whole.intermediate, set(whole.moe.layers)) == (0, {True})
    assert read({**TINY_LATENT, "first_k_dense_replace": 4}).moe is None


def test_llama_4_alternates_layers_and_windows() -> None:
    sizes = {**TINY, "model_type": "llama4_text", "num_local_experts": 4, "num_experts_per_tok": 1}
    arch = read({**sizes, "interleave_moe_layer_step": 2, "attention_chunk_size": 64})
    assert arch.moe is not None
    assert (arch.intermediate, arch.moe.intermediate, arch.moe.shared_intermediate) == (16384, 208, 208)
    assert arch.moe.layers == (False, True, False, True)
    assert arch.windows == (64, 64, 64, None)
    listed = read({**sizes, "moe_layers": [0], "no_rope_layers": [0, 1, 0, 1], "attention_chunk_size": 64})
    assert listed.moe is not None
    assert (listed.moe.layers, listed.windows) == ((True, False, False, False), (None, 64, None, 64))
    kinds = ["chunked_attention"] + ["full_attention"] * 3
    assert read({**sizes, "layer_types": kinds, "attention_chunk_size": None}).windows == (None,) * 4
    assert problems({**sizes, "no_rope_layers": [1]}) == {
        "no_rope_layers": "len(no_rope_layers) = 1 >= num_hidden_layers = 4"
    }


def test_minimax_m2_norms_all_heads_together() -> None:
    arch = load_model("minimax-m2.5").architecture
    assert arch.qk_norm_over_heads
    assert arch.left_out == ("num_mtp_modules = 3: layers that predict further tokens",)
    block = load_model("minimax-m2.5").blocks[1]
    norms = {op.name: op for op in block.operators if isinstance(op, Norm)}
    assert (norms["q_norm"].width, norms["k_norm"].width) == (48 * 128, 8 * 128)
    assert norms["q_norm"].instances == 1


def test_glm_5_attends_to_all_positions_and_says_so() -> None:
    arch = load_model("glm-5").architecture
    assert arch.latent is not None
    assert set(arch.windows) == {None}
    assert any("indexer of sparse attention" in text for text in arch.left_out)


def test_rotary_base_from_any_of_its_places() -> None:
    assert read({**TINY, "rope_theta": 5e5}).rope_theta == 5e5
    assert read({**TINY, "rope_parameters": {"rope_theta": 7e5}, "rope_theta": 5e5}).rope_theta == 7e5
    nested = {"rope_parameters": {"full_attention": {"rope_theta": 3e6}}}
    assert read({**TINY, **nested}).rope_theta == 3e6
    assert read(TINY).rope_theta == 1e4


def test_text_tower_of_a_vision_language_model() -> None:
    whole = {"model_type": "llava", "text_config": TINY, "vision_config": {"hidden_size": "?"}}
    assert read(whole).family == "llama"
    assert read({**whole, "tie_word_embeddings": True}).tied_embeddings
    assert problems({"model_type": "llava", "text_config": 3}) == {
        "text_config": "text_config must be an object"
    }
    broken = {"model_type": "llava", "text_config": {**TINY, "hidden_size": 0}}
    assert list(problems(broken)) == ["text_config.hidden_size"]


def test_dropout_rates() -> None:
    gpt = {"model_type": "gpt2", "vocab_size": 9, "n_embd": 12, "n_layer": 1, "n_head": 3}
    assert read(gpt).dropout
    assert not read({**gpt, "resid_pdrop": 0.0, "attn_pdrop": 0}).dropout
    assert list(problems({**gpt, "resid_pdrop": -0.1})) == ["resid_pdrop"]


MUTATIONS = st.one_of(
    st.sampled_from([None, True, False, 0, 1, 3, -1, -(2**40), 2**16, 2**40, 2**40 + 1, 10**30]),
    st.sampled_from([0.5, -0.5, 1e308, float("inf"), float("nan"), "", "4096", "full_attention"]),
    st.sampled_from(
        [[], [1], ["sliding_attention"], [None, [], {}], {}, {"rope_theta": "x"}, {"full_attention": 1}]
    ),
)


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_no_mutation_raises_anything_else(data: st.DataObject) -> None:
    config = zoo_config(data.draw(st.sampled_from(zoo_names())))
    if data.draw(st.booleans()):
        config = {"model_type": "llava", "text_config": config}
    part = config.get("text_config", config)
    extra = ["rope_parameters", "layer_types", "mlp_only_layers", "head_dim", "num_key_value_heads"]
    for key in data.draw(st.lists(st.sampled_from(sorted({*part, *extra})), min_size=1, max_size=4)):
        if data.draw(st.booleans()):
            part.pop(key, None)
        else:
            part[key] = data.draw(MUTATIONS)
    try:
        graph = build_graph(read(config))
    except InputError as error:
        told = str(error)
    else:
        told = json.dumps(describe_model(graph), allow_nan=False)
        assert 0 < graph.parameters_active <= graph.parameters
    assert told


@pytest.mark.parametrize(
    ("family", "says"), [("foo", "one of "), ("lama", "did you mean llama?"), ("x", "one of ")]
)
def test_an_unknown_family_is_answered_with_near_ones_or_some_of_all(family: str, says: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        read({**TINY, "model_type": family})
    (problem,) = caught.value.problems
    assert problem.suggestion.startswith(says)
