"""Translate a served model's name into the zoo's, and the number format that the name says.

A checkpoint in another format has its model's name and an ending: ``Llama-3.1-8B-Instruct-FP8`` or ``Qwen3-32B-NVFP4``.
The ending gives the weights' format where a table has none; ``-FP8-KV`` also says that of the cache. An ending that
does not say which scales it has (Qwen's FP8 files have one for each block) is its plain format.
"""

import re
from dataclasses import dataclass

from meshwright.model.zoo_names import zoo_name
from meshwright.validation.run_model import released_model_name

ENDING = re.compile(
    r"(?P<name>.+?)[-_ ](?P<format>fp8|nvfp4|fp4|mxfp4|int8|int4|awq|gptq|bf16)(?P<kv>-kv)?", re.I
)
FORMATS = {
    "fp8": "fp8",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
    "fp4": "fp4",
    "int8": "int8",
    "int4": "int4",
    "awq": "int4",
    "gptq": "int4",
    "bf16": "bf16",
}
PAIR = re.compile(r"(deepseek-)(r1/v3|v3/r1)", re.I)


@dataclass(frozen=True, slots=True)
class CheckpointName:
    """A zoo model, and the formats that the name of its checkpoint says; None: the name says none."""

    model: str
    weights: str | None = None
    kv: str | None = None


def checkpoint_name(text: str) -> CheckpointName:
    """Return the zoo model of a name under any known spelling. Raises ValueError for another name."""
    name = PAIR.sub(r"\1v3", text.strip())
    known = _model(name)
    if known is not None:
        return CheckpointName(known)
    found = ENDING.fullmatch(name)
    known = found and _model(found["name"])
    if not found or not known:
        raise ValueError("must be the name of a model of the zoo")
    kind = FORMATS[found["format"].lower()]
    return CheckpointName(known, kind, kind if found["kv"] else None)


def _model(name: str) -> str | None:
    return zoo_name(name) or zoo_name(name.rpartition("/")[2]) or released_model_name(name)
