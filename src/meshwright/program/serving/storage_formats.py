"""Number formats of each operator's weights and of the cache in a replica.

4-bit formats of models with experts hold the routed experts alone, and leave attention, dense and shared layers as they
were (the released gpt-oss, Kimi-K2-Thinking and NVFP4 DeepSeek-R1). Tables of the vocabulary, norms and routers are in
16 bit in all formats.
"""

from dataclasses import dataclass

from meshwright.model.architecture import Architecture
from meshwright.model.operators.operator_types import ExpertLinear, Linear, Operator
from meshwright.plans.serving.number_formats import (
    KV_FORMATS,
    RELEASED_FORMATS,
    WEIGHT_FORMATS,
    NumberFormats,
)

WEIGHT_BITS = {name: form.bits_per_element for name, form in (WEIGHT_FORMATS | RELEASED_FORMATS).items()}
KV_BITS = {name: form.bits_per_element for name, form in KV_FORMATS.items()}
"""Bits of an element by format, with its part of a scale."""
PLAIN = "bf16"
FOUR_BIT = ("fp4", "mxfp4", "int4", "int4-32")
KEPT_LINEARS = ("router", "shared_gate", "lm_head")
"""Products whose weights stay in 16 bit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageFormats:
    """Formats of a replica: of weights, of the cache, and of weights that a 4-bit format of experts leaves alone."""

    weights: str = PLAIN
    kv: str = PLAIN
    beside_experts: str = PLAIN

    def of(self, op: Operator, arch: Architecture) -> str:
        """Return the format of the weights of one operator."""
        if isinstance(op, ExpertLinear):
            return self.weights
        if not isinstance(op, Linear) or op.name in KEPT_LINEARS:
            return PLAIN
        return self.beside_experts if self.weights in FOUR_BIT and arch.moe is not None else self.weights

    def bits(self, op: Operator, arch: Architecture) -> float:
        """Return the bits of an element of an operator's weights."""
        return WEIGHT_BITS[self.of(op, arch)]

    @classmethod
    def of_pool(cls, asked: NumberFormats, arch: Architecture) -> "StorageFormats":
        """Return the formats of a pool; by default that of the released weights, and 16 bit for the cache.

        8 or 4 bit asked of weights that were released in such a format with scales of blocks are that format.
        """
        released = arch.released_weights
        alike = {"fp8-block": "fp8", "mxfp4": "fp4", "int4-32": "int4"}.get(released)
        weights = released if asked.weights in (None, alike) else asked.weights
        assert weights is not None
        return cls(weights=weights, kv=asked.kv or PLAIN)

    @property
    def kv_bytes(self) -> float:
        """Bytes of an element of the cache."""
        return KV_BITS[self.kv] / 8
