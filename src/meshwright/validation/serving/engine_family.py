"""Translate the name of a serving engine into its family and release.

Release tables spell one engine in several ways ("trtllm 1.0.0rc3", "TensorRT-LLM 0.20 (PyTorch backend)"). MLPerf's
"TensorRT 10.11" is the library below TensorRT-LLM, whose own release it leaves out. Any other engine is
``generic-serving``.
"""

import re
from dataclasses import dataclass

GENERIC = "generic-serving"
FAMILIES = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt-llm": "tensorrt-llm",
    "tensorrt llm": "tensorrt-llm",
    "tensorrt_llm": "tensorrt-llm",
    "tensorrtllm": "tensorrt-llm",
    "trtllm": "tensorrt-llm",
    "trt-llm": "tensorrt-llm",
    "tensorrt": "tensorrt-llm",
}
NAMES = "|".join(sorted(map(re.escape, FAMILIES), key=len, reverse=True))
ENGINE = re.compile(rf"(?P<name>{NAMES})(?![a-z])(?:[\s=@v-]*(?P<release>[0-9][\w.+]*))?.*", re.I | re.S)
LIBRARY = "tensorrt"


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine's family, and its release or ""."""

    family: str
    release: str = ""


def engine_of(text: str) -> Engine:
    """Return family and release of an engine's name; the family of an unknown one is ``generic-serving``."""
    found = ENGINE.match(text.strip())
    if found is None:
        return Engine(GENERIC)
    name = found["name"].lower()
    return Engine(FAMILIES[name], "" if name == LIBRARY else (found["release"] or "").lower())
