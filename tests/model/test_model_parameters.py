"""Parameter counts against transformers: recorded ones always, fresh ones by `make proof`.

To record anew: run the fresh tests with the version to be recorded, and put its counts into the files.
"""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from meshwright.model.families.architecture_table import FAMILIES, VISION_ENCODERS, read_architecture
from meshwright.model.load import load_model
from meshwright.model.operators.blocks import build_graph
from meshwright.model.zoo_names import zoo_names

GOLDEN = json.loads(Path(__file__).with_name("golden_parameters.json").read_text())["parameters"]
SMALL = json.loads(Path(__file__).with_name("family_parameters.json").read_text())["families"]

# Published sizes in billions; GLM-4.5 without its multi-token-prediction layer.
PUBLISHED_B = {
    "gpt-3-175b": 174.6,
    "bloom-176b": 176.247,
    "llama-2-7b": 6.738,
    "llama-2-70b": 68.977,
    "llama-3.1-8b": 8.03,
    "llama-3.1-70b": 70.554,
    "llama-3.1-405b": 405.853,
    "llama-3.2-1b": 1.236,
    "mistral-7b-v0.3": 7.248,
    "qwen2.5-7b": 7.616,
    "qwen2.5-72b": 72.706,
    "qwen3-8b": 8.191,
    "qwen3-14b": 14.768,
    "qwen3-32b": 32.762,
    "gemma-2-9b": 9.242,
    "gemma-2-27b": 27.227,
    "minimax-text-01": 456.09,
    "mistral-small-24b-2501": 23.572,
    "mixtral-8x7b": 46.703,
    "mixtral-8x22b": 140.63,
    "qwen3-30b-a3b": 30.532,
    "qwen3-235b-a22b": 235.094,
    "deepseek-v2": 235.741,
    "deepseek-v3": 671.026,
    "kimi-k2": 1026.4,
    "gpt-oss-120b": 116.83,
    "gpt-oss-20b": 20.91,
    "t5-small": 0.0605,
    "t5-11b": 11.307,
    "flan-t5-xl": 2.85,
    "qwen2.5-vl-3b": 3.755,
    "qwen2.5-vl-7b": 8.292,
    "glm-4.5": 352.8,
    "glm-4.5-air": 106.85,
}

# Published sizes in billions, rounded by their authors: they show that the embeddings are tied.
ROUNDED_B = {
    "llama-3.2-3b": 3.21,
    "ernie-4.5-0.3b": 0.36,
    "gemma-2b": 2.506,
    "gemma-7b": 8.538,
    "granite-3.1-2b": 2.53,
    "granite-4.0-h-350m": 0.34,
    "granite-4.0-h-micro": 3.19,
    "ministral-3-3b": 3.4,
    "phi-4-mini": 3.8,
    "olmo-1b": 1.18,
    "qwen2.5-0.5b": 0.49,
    "qwen2.5-1.5b": 1.54,
    "qwen2.5-3b": 3.09,
    "qwen3-0.6b": 0.6,
    "qwen3-4b": 4.0,
    "smollm2-135m": 0.135,
    "smollm2-360m": 0.362,
    "smollm2-1.7b": 1.71,
    "smollm3-3b": 3.08,
}

# Active parameters in billions as their authors state them, rounded by them.
ACTIVE_B = {
    "glm-5": 40.0,
    "minimax-m2.5": 10.0 + 2 * 0.61,  # without the embedding's and the head's table, 200064 · 3072 each
    "minimax-text-01": 45.9 + 2 * 1.23,  # without the embedding's and the head's table, 200064 · 6144 each
    "llama-4-maverick": 17.0,
    "llama-4-scout": 17.0,
    "mixtral-8x7b": 12.9,
    "mixtral-8x22b": 39.0,
    "nemotron-3-nano-30b-a3b": 3.2 + 0.35,  # without the embedding's table, 131072 · 2688
    "qwen2-57b-a14b": 14.0,
    "qwen3-30b-a3b": 3.3,
    "qwen3-coder-480b-a35b": 35.0,
    "qwen3-235b-a22b": 22.0,
    "qwen3.5-397b-a17b": 17.0,
    "deepseek-v2": 21.0,
    "deepseek-v3": 37.0,
    "kimi-k2": 32.0,
    "kimi-k2.5": 32.0,
    "gpt-oss-120b": 5.1 + 0.58,  # the model card leaves out the embedding table, 201088 · 2880
    "gpt-oss-20b": 3.6 + 0.58,
}


# Parameters that a description leaves out and says so: an indexer of sparse attention projects queries from their
# rank, keys and head weights from the stream, and norms keys.
LEFT_OUT = {"glm-5": 78 * (4096 * 2048 + 128 * 6144 + 32 * 6144 + 2 * 128)}


def zoo_config(name: str) -> dict[str, Any]:
    return json.loads(files("meshwright.model").joinpath("zoo", f"{name}.json").read_text())


def count_in_transformers(config: dict[str, Any]) -> int:
    """All parameters on the meta device; a vision tower that is not read is left out, with its projector.

    Built from a configuration, T5 1.1 has no head of its own: transformers unties it when it loads weights.
    """
    import torch
    import transformers

    sizes = {key: value for key, value in config.items() if not key.startswith("_")}
    hf_config = transformers.AutoConfig.for_model(sizes.pop("model_type"), **sizes)
    auto = transformers.AutoModelForCausalLM
    if config["model_type"] == "t5":
        auto = transformers.AutoModelForSeq2SeqLM
    elif "text_config" in config or "vision_config" in config:
        auto = transformers.AutoModelForImageTextToText
    with torch.device("meta"):
        model = auto.from_config(hf_config)
    read = config["model_type"] in VISION_ENCODERS and "vision_config" in config
    others = () if read else ("visual.", "vision_tower.", "multi_modal_projector.")
    named = model.named_parameters()
    count = sum(tensor.numel() for name, tensor in named if not any(other in name for other in others))
    own_head = config["model_type"] == "t5" and not config.get("tie_word_embeddings", True)
    return count + (model.lm_head.weight.numel() if own_head else 0)


def test_every_zoo_model_is_recorded() -> None:
    assert set(GOLDEN) == set(zoo_names())


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_zoo_count_equals_the_recorded_one(name: str) -> None:
    assert load_model(name).parameters + LEFT_OUT.get(name, 0) == GOLDEN[name]


@pytest.mark.parametrize("name", sorted(LEFT_OUT))
def test_what_is_left_out_is_said(name: str) -> None:
    assert load_model(name).architecture.left_out


@pytest.mark.parametrize("case", SMALL, ids=[case["name"] for case in SMALL])
def test_family_count_equals_the_recorded_one(case: dict[str, Any]) -> None:
    assert build_graph(read_architecture(case["config"], "small", "test")).parameters == case["parameters"]


def test_every_family_is_counted() -> None:
    counted = {zoo_config(name)["model_type"] for name in zoo_names()}
    for case in SMALL:
        counted.add(read_architecture(case["config"], "small", "test").family)
    assert counted | {"kimi_k2"} == set(FAMILIES)  # another spelling of a counted family


@pytest.mark.parametrize(
    ("spelling", "family"), [("kimi_k2", "deepseek_v3"), ("qwen2_5_vl", "qwen2_5_vl_text")]
)
def test_other_spellings_have_the_same_reader(spelling: str, family: str) -> None:
    assert FAMILIES[spelling] is FAMILIES[family]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_zoo_count_is_what_transformers_builds(name: str) -> None:
    assert count_in_transformers(zoo_config(name)) == load_model(name).parameters + LEFT_OUT.get(name, 0)


@pytest.mark.slow
@pytest.mark.parametrize("case", SMALL, ids=[case["name"] for case in SMALL])
def test_family_count_is_what_transformers_builds(case: dict[str, Any]) -> None:
    assert count_in_transformers(case["config"]) == case["parameters"]


@pytest.mark.parametrize("name", sorted(PUBLISHED_B))
def test_zoo_count_is_the_published_size(name: str) -> None:
    assert load_model(name).parameters == pytest.approx(PUBLISHED_B[name] * 1e9, rel=4e-4)


@pytest.mark.parametrize("name", sorted(ROUNDED_B))
def test_tied_count_is_the_published_size(name: str) -> None:
    assert load_model(name).architecture.tied_embeddings
    assert load_model(name).parameters == pytest.approx(ROUNDED_B[name] * 1e9, rel=0.01)


@pytest.mark.parametrize("name", sorted(ACTIVE_B))
def test_active_parameters_are_what_the_authors_state(name: str) -> None:
    assert load_model(name).parameters_active == pytest.approx(ACTIVE_B[name] * 1e9, rel=0.03)


def test_deepseek_v3_without_its_prediction_layer() -> None:
    assert load_model("deepseek-v3").parameters == 671_026_404_352
