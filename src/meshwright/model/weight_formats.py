"""The number format in which a model's weights were released, from ``quantization_config`` of its ``config.json``.

Names are those of ``plans/serving/number_formats.py``. A method that is not known here reads as 16 bit, and the model's
``assumed`` says so.
"""

from collections.abc import Mapping

PLAIN = "bf16"
KEY = "quantization_config"
HALF = "float16"
BY_METHOD = {"mxfp4": "mxfp4", "awq": "int4", "gptq": "int4", "nvfp4": "fp4"}


def released_format(config: Mapping[str, object]) -> str:
    """Return the format of the released weights."""
    quantised = config.get(KEY)
    if not isinstance(quantised, Mapping):
        return "fp16" if HALF in (config.get("torch_dtype"), config.get("dtype")) else PLAIN
    method = str(quantised.get("quant_method", "")).lower()
    if method == "fp8":
        return "fp8-block" if quantised.get("weight_block_size") else "fp8"
    if method == "compressed-tensors":
        return _of_groups(quantised)
    if method == "modelopt":
        return "fp4" if "NVFP4" in str(quantised.get("quant_algo", "")).upper() else "fp8"
    return BY_METHOD.get(method, PLAIN)


def is_known(config: Mapping[str, object]) -> bool:
    """Return whether the file names no method, or one that is read."""
    quantised = config.get(KEY)
    known = {*BY_METHOD, "fp8", "compressed-tensors", "modelopt"}
    return quantised is None or (
        isinstance(quantised, Mapping) and str(quantised.get("quant_method", "")).lower() in known
    )


def _of_groups(quantised: Mapping[str, object]) -> str:
    """Return the format of weights in compressed-tensors, which names bits and type for each group of products."""
    text = str(quantised.get("config_groups", ""))
    if "'num_bits': 4" in text:
        return ("int4-32" if "'group_size': 32" in text else "int4") if "'int'" in text else "fp4"
    return "int8" if "'int'" in text else "fp8"
