"""Read a Hugging Face ``config.json`` as an ``Architecture``: the table of families.

``FAMILIES`` maps ``model_type`` to the reader of that family. Of a vision-language model only the text tower
(``text_config``) is read, and the vision tower (``vision_config``) if ``VISION_ENCODERS`` has a reader for it: other
towers are not counted.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from meshwright.errors import InputError, Problem, nearest
from meshwright.model.architecture import Architecture
from meshwright.model.encoder import VisionEncoder
from meshwright.model.families.config_fields import Fields
from meshwright.model.families.dense_decoders import (
    ernie4_5,
    glm,
    glm4,
    llama,
    ministral3,
    mistral,
    olmo,
    phi3,
    qwen2,
    qwen2_5_vl_text,
    qwen3,
    qwen3_vl_text,
    smollm3,
    stablelm,
    starcoder2,
)
from meshwright.model.families.gemma_decoders import gemma, gemma2, gemma3
from meshwright.model.families.gpt2_and_bloom import bloom, gpt2, gptj
from meshwright.model.families.linear_attention_decoders import minimax
from meshwright.model.families.moe_decoders import (
    deepseek_v2,
    deepseek_v3,
    dots1,
    glm4_moe,
    glm_moe_dsa,
    gpt_oss,
    llama4,
    minimax_m2,
    mixtral,
    qwen2_moe,
    qwen3_moe,
)
from meshwright.model.families.nemotron_decoders import nemotron_h
from meshwright.model.families.numerics_table import read_numerics
from meshwright.model.families.qwen_vl import vision_encoder
from meshwright.model.families.state_space_decoders import granitemoehybrid, qwen3_5_moe
from meshwright.model.families.t5 import t5
from meshwright.model.weight_formats import KEY, PLAIN, is_known, released_format

FAMILIES: dict[str, Callable[[Fields], Architecture]] = {
    "bloom": bloom,
    "deepseek_v2": deepseek_v2,
    "deepseek_v3": deepseek_v3,
    "dots1": dots1,
    "ernie4_5": ernie4_5,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "glm": glm,
    "glm4": glm4,
    "glm4_moe": glm4_moe,
    "glm_moe_dsa": glm_moe_dsa,
    "gpt2": gpt2,
    "gpt_oss": gpt_oss,
    "gptj": gptj,
    "granite": llama,
    "granitemoehybrid": granitemoehybrid,
    "kimi_k2": deepseek_v3,
    "llama": llama,
    "llama4_text": llama4,
    "minimax": minimax,
    "minimax_m2": minimax_m2,
    "ministral3": ministral3,
    "mistral": mistral,
    "mixtral": mixtral,
    "nemotron_h": nemotron_h,
    "olmo": olmo,
    "phi3": phi3,
    "qwen2": qwen2,
    "qwen2_5_vl": qwen2_5_vl_text,  # older files hold the text tower's keys at the top
    "qwen2_5_vl_text": qwen2_5_vl_text,
    "qwen2_moe": qwen2_moe,
    "qwen3": qwen3,
    "qwen3_5_moe_text": qwen3_5_moe,
    "qwen3_moe": qwen3_moe,
    "qwen3_vl_moe_text": qwen3_moe,
    "qwen3_vl_text": qwen3_vl_text,
    "smollm3": smollm3,
    "stablelm": stablelm,
    "starcoder2": starcoder2,
    "t5": t5,
}

VISION_ENCODERS: dict[str, Callable[[Fields, Architecture], VisionEncoder]] = {"qwen2_5_vl": vision_encoder}
"""Readers of vision towers by the ``model_type`` of the whole model."""
VISION = "vision_config"


def read_architecture(config: Mapping[str, object], name: str, source: str) -> Architecture:
    """Return the architecture that a configuration describes.

    ``name`` is the model's name, ``source`` the configuration's origin. Raises InputError with every problem,
    UnsupportedError for a family or feature that is not supported.
    """
    fields = Fields(*_text_tower(config))
    if not fields.has("model_type"):
        fields.problem("model_type", None, "model_type is missing", "one of " + ", ".join(FAMILIES))
    family = fields.text("model_type", default="llama")
    if family not in FAMILIES:
        rule = "model_type must be a family that can be read"
        fields.unsupported("model_type", family, rule, nearest(family, FAMILIES, alike=0.6))
    fields.finish()
    arch = replace(FAMILIES[family](fields), family=family, assumed=fields.assumed)
    arch = _with_vision(config, fields, arch)
    fields.finish()
    if not is_known(config):
        arch = replace(arch, assumed=(*arch.assumed, (KEY, PLAIN)))
    arch = replace(arch, name=name, source=source, released_weights=released_format(config))
    return replace(arch, numerics=read_numerics(fields.aside(), arch))


def _with_vision(config: Mapping[str, object], fields: Fields, arch: Architecture) -> Architecture:
    """Return the whole model if the file describes a vision tower that can be read, else the text tower."""
    whole = config.get("model_type")
    if config.get(VISION) is None or not isinstance(whole, str) or whole not in VISION_ENCODERS:
        return arch
    file = fields.part(config, "")
    vision = file.mapping(VISION)
    if not file.sound(VISION):
        return arch
    encoder = VISION_ENCODERS[whole](vision, arch)
    assumed = tuple((f"{VISION}.{key}", value) for key, value in vision.assumed)
    return replace(arch, family=whole, encoder=encoder, assumed=arch.assumed + assumed)


def _text_tower(config: Mapping[str, object]) -> tuple[Mapping[str, object], str]:
    """Return the part of a configuration that describes the decoder, and its path in the file.

    Tied embeddings are read from the whole model's level if they are set there.
    """
    tower = config.get("text_config")
    if tower is None:
        return config, ""
    if not isinstance(tower, dict):
        rule = "text_config must be an object"
        raise InputError(Problem("text_config", tower, rule, "write text_config as {...} or leave it out"))
    tied = config.get("tie_word_embeddings", tower.get("tie_word_embeddings"))
    return (tower if tied is None else {**tower, "tie_word_embeddings": tied}), "text_config."
