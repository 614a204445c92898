"""Bits of an element in the formats of weights and caches, scales included.

fp8, int8        8 bit with one scale for a tensor or a row: 8
fp8-block        one fp32 scale for a block of 128 × 128: 8 + 32/128²
fp4              NVFP4, an fp8 scale for 16 elements: 4 + 8/16
mxfp4            a scale of 8 bit for 32 elements, as gpt-oss is released: 4 + 8/32
int4             a 16-bit scale for a group of 128: 4 + 16/128
A cache in fp8 or int8 has a scale for a tensor, in fp4 one for 16 elements.

4-bit formats of models with experts hold the routed experts alone, and leave attention, dense and shared layers as they
were (the released gpt-oss, Kimi-K2-Thinking and NVFP4 DeepSeek-R1). Tables of the vocabulary, norms and routers are in
16 bit in all formats.
"""

from dataclasses import dataclass

from meshwright.model.architecture import Architecture
from meshwright.model.operators.operator_types import ExpertLinear, Linear, Operator

WEIGHT_BITS: dict[str, float] = {
    "bf16": 16,
    "fp16": 16,
    "fp8": 8,
    "fp8-block": 8 + 32 / 128**2,
    "int8": 8,
    "fp4": 4.5,
    "mxfp4": 4.25,
    "int4": 4.125,
}
KV_BITS: dict[str, float] = {"bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "fp4": 4.5}
PLAIN = "bf16"
FOUR_BIT = ("fp4", "mxfp4", "int4")
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

    @property
    def kv_bytes(self) -> float:
        """Bytes of an element of the cache."""
        return KV_BITS[self.kv] / 8
