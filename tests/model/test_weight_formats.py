"""The number format of released weights, from configurations as they are published."""

import json

import pytest

from meshwright.model.load import load_config, load_model
from meshwright.model.weight_formats import is_known, released_format

INT4 = {"weights": {"num_bits": 4, "type": "int", "group_size": 128}}
FLOAT4 = {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}
INT8 = {"weights": {"num_bits": 8, "type": "int"}}


@pytest.mark.parametrize(
    ("quantised", "name"),
    [
        (None, "bf16"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "fp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": INT4}}, "int4"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": FLOAT4}}, "fp4"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": INT8}}, "int8"),
    ],
)
def test_a_quantised_release_has_its_format(quantised, name):
    config = {"torch_dtype": "bfloat16", "quantization_config": quantised}
    assert released_format(config) == name
    assert is_known(config)


def test_16_bit_of_either_kind_is_kept_apart():
    assert released_format({"torch_dtype": "float16"}) == "fp16"
    assert released_format({}) == "bf16"


def test_an_unknown_method_is_read_as_16_bit_and_the_model_says_so():
    config = {**load_config("llama-3.2-1b"), "quantization_config": {"quant_method": "mango"}}
    assert not is_known(config)
    architecture = load_model(json.dumps(config)).architecture
    assert architecture.released_weights == "bf16"
    assert ("quantization_config", "bf16") in architecture.assumed


@pytest.mark.parametrize(
    ("model", "name"),
    [("deepseek-v3", "fp8-block"), ("gpt-oss-120b", "mxfp4"), ("kimi-k2-thinking", "int4-32")],
)
def test_released_models_have_their_published_format(model, name):
    assert load_model(model).architecture.released_weights == name
