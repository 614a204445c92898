"""From a Hugging Face ``config.json`` to ``Numerics``: the table of families whose arithmetic is known.

The shapes have been read before (``model/families.py``). What is wrong or not supported here hinders no planning, so
that it is kept in ``Numerics.refused`` instead of raised.
"""

from collections.abc import Callable
from dataclasses import replace

from meshwright.errors import Problem
from meshwright.model.architecture import Architecture
from meshwright.model.classic_numerics import bloom, gpt2
from meshwright.model.decoder_numerics import (
    decoder_numerics,
    glm4,
    granite,
    llama,
    ministral3,
    phi3,
    smollm3,
)
from meshwright.model.expert_numerics import (
    deepseek_v2,
    deepseek_v3,
    dots1,
    glm4_moe,
    gpt_oss,
    mixtral,
    qwen_moe,
)
from meshwright.model.fields import Fields
from meshwright.model.gemma_numerics import gemma2, gemma3
from meshwright.model.linear_decoders import minimax_numerics
from meshwright.model.numerics import Numerics

FAMILY_NUMERICS: dict[str, Callable[[Fields, Architecture], Numerics]] = {
    "bloom": bloom,
    "deepseek_v2": deepseek_v2,
    "deepseek_v3": deepseek_v3,
    "dots1": dots1,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "glm4": glm4,
    "glm4_moe": glm4_moe,
    "gpt2": gpt2,
    "gpt_oss": gpt_oss,
    "granite": granite,
    "kimi_k2": deepseek_v3,
    "llama": llama,
    "minimax": minimax_numerics,
    "ministral3": ministral3,
    "mistral": llama,
    "mixtral": mixtral,
    "phi3": phi3,
    "qwen2": llama,
    "qwen2_5_vl": llama,
    "qwen2_5_vl_text": llama,
    "qwen2_moe": qwen_moe,
    "qwen3": llama,
    "qwen3_moe": qwen_moe,
    "qwen3_vl_text": llama,
    "smollm3": smollm3,
    "starcoder2": llama,
}


def read_numerics(fields: Fields, arch: Architecture) -> Numerics:
    """The arithmetic of a decoder whose shapes have been read; never raises."""
    numerics = FAMILY_NUMERICS.get(arch.family, _planned_only)(fields, arch)
    return replace(numerics, refused=tuple(map(_hashable, fields.found)))


def _hashable(problem: Problem) -> Problem:
    """An architecture is a key of tables: lists and mappings of the file stand in it as text."""
    plain = isinstance(problem.value, str | int | float | None)
    return problem if plain else replace(problem, value=repr(problem.value)[:80])


def _planned_only(fields: Fields, arch: Architecture) -> Numerics:
    """A family that can be planned and is not run yet."""
    rule = f"models of type {arch.family} can be planned, not run yet"
    fields.unsupported("model_type", arch.family, rule, "run one of " + ", ".join(FAMILY_NUMERICS))
    return decoder_numerics(fields, arch, None)
