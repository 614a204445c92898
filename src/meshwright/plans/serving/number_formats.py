"""Number formats of served weights and caches, with the bits that an element takes, scales included.

``fp8-block`` has a 32-bit scale for each block of 128 × 128 weights (DeepSeek-V3, arXiv 2412.19437, section 3.3);
``fp4`` an 8-bit scale for each 16 elements of a row (NVFP4); ``int4`` a 16-bit scale and a 4-bit zero point for each
128 weights of an input dimension (AWQ, arXiv 2306.00978). Formats with one scale for a tensor or a channel count the
elements alone: such scales are below 0.1 % of the bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """Bits of an element, and bits of the scale that ``scaled_elements`` neighbours share; 0: no such scale."""

    element_bits: int
    scale_bits: int = 0
    scaled_elements: int = 1

    @property
    def bits_per_element(self) -> float:
        """Bits that an element takes, with its part of a scale."""
        return self.element_bits + self.scale_bits / self.scaled_elements


WEIGHT_FORMATS: dict[str, NumberFormat] = {
    "bf16": NumberFormat(16),
    "fp16": NumberFormat(16),
    "fp8": NumberFormat(8),
    "fp8-block": NumberFormat(8, 32, 128 * 128),
    "fp4": NumberFormat(4, 8, 16),
    "int8": NumberFormat(8),
    "int4": NumberFormat(4, 20, 128),
}
RELEASED_FORMATS: dict[str, NumberFormat] = {
    "mxfp4": NumberFormat(4, 8, 32),
    "int4-32": NumberFormat(4, 16, 32),
}
"""Formats that no plan asks for, of weights that are released in them.

gpt-oss has an 8-bit scale for 32 elements, Kimi-K2-Thinking a 16-bit one.
"""
KV_FORMATS: Mapping[str, NumberFormat] = {
    "bf16": NumberFormat(16),
    "fp8": NumberFormat(8),
    "int8": NumberFormat(8),
    "fp4": NumberFormat(4, 8, 16),
}


@dataclass(frozen=True, slots=True)
class NumberFormats:
    """Names of the formats of a pool. ``weights`` None: the released weights' own; ``kv`` None: the model's type."""

    weights: str | None = None
    kv: str | None = None

    @property
    def changes(self) -> int:
        """Number of formats that are not those of the released model."""
        return (self.weights is not None) + (self.kv is not None)
