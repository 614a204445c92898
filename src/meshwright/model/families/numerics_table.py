"""Read a Hugging Face ``config.json`` as ``Numerics``: the table of families whose arithmetic is known.

``model/families/architecture_table.py`` has read the shapes before. A wrong or unsupported value here does not prevent
planning, so it is kept in ``Numerics.refused`` instead of raised.
"""

from collections.abc import Callable
from dataclasses import replace

from meshwright.errors import Problem
from meshwright.model.architecture import Architecture
from meshwright.model.families.config_fields import Fields
from meshwright.model.families.dense_numerics import (
    decoder_numerics,
    ernie4_5,
    glm4,
    granite,
    llama,
    ministral3,
    olmo,
    phi3,
    smollm3,
    stablelm,
)
from meshwright.model.families.gemma_numerics import gemma, gemma2, gemma3
from meshwright.model.families.gpt2_and_bloom_numerics import bloom, gpt2
from meshwright.model.families.linear_attention_decoders import minimax_numerics
from meshwright.model.families.moe_numerics import (
    deepseek_v2,
    deepseek_v3,
    dots1,
    glm4_moe,
    gpt_oss,
    mixtral,
    qwen_moe,
)
from meshwright.model.families.qwen_vl import qwen2_5_vl_numerics
from meshwright.model.families.state_space_decoders import granitemoehybrid_numerics
from meshwright.model.families.t5 import t5_numerics
from meshwright.model.numerics import Numerics

FAMILY_NUMERICS: dict[str, Callable[[Fields, Architecture], Numerics]] = {
    "bloom": bloom,
    "deepseek_v2": deepseek_v2,
    "deepseek_v3": deepseek_v3,
    "dots1": dots1,
    "ernie4_5": ernie4_5,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "glm": glm4,
    "glm4": glm4,
    "glm4_moe": glm4_moe,
    "gpt2": gpt2,
    "gpt_oss": gpt_oss,
    "granite": granite,
    "granitemoehybrid": granitemoehybrid_numerics,
    "kimi_k2": deepseek_v3,
    "llama": llama,
    "minimax": minimax_numerics,
    "ministral3": ministral3,
    "mistral": llama,
    "mixtral": mixtral,
    "olmo": olmo,
    "phi3": phi3,
    "qwen2": llama,
    "qwen2_5_vl": qwen2_5_vl_numerics,
    "qwen2_5_vl_text": llama,
    "qwen2_moe": qwen_moe,
    "qwen3": llama,
    "qwen3_moe": qwen_moe,
    "qwen3_vl_text": llama,
    "smollm3": smollm3,
    "stablelm": stablelm,
    "starcoder2": llama,
    "t5": t5_numerics,
}


def read_numerics(fields: Fields, arch: Architecture) -> Numerics:
    """Return the arithmetic of a decoder whose shapes have been read; never raises."""
    numerics = FAMILY_NUMERICS.get(arch.family, _planned_only)(fields, arch)
    return replace(numerics, refused=tuple(map(_hashable, fields.found)))


def _hashable(problem: Problem) -> Problem:
    """Replace a problem's list or mapping by text, because an architecture must be hashable."""
    plain = isinstance(problem.value, str | int | float | None)
    return problem if plain else replace(problem, value=repr(problem.value)[:80])


def _planned_only(fields: Fields, arch: Architecture) -> Numerics:
    """Return numerics that refuse to run: the family can only be planned."""
    rule = f"models of type {arch.family} can be planned, not run yet"
    fields.unsupported("model_type", arch.family, rule, "run one of " + ", ".join(FAMILY_NUMERICS))
    return decoder_numerics(fields.aside(), arch, None)  # its activation is refused with it
