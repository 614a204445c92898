"""Element types of frozen parameters that adapters are trained on, and their bytes.

``half``: 16 bits, also where a stack keeps trained parameters in fp32.

``int8``: a byte for each element, and one fp32 scale for each output row.
``nf4`` (QLoRA; Dettmers et al., arXiv 2305.14314): four bits for each element, in blocks of 64 along the inputs; the
scale of a block is a byte, and those of the same inputs of 256 rows share one in fp32. So an element has 0.5 + 1/64 +
4/(64·256) = 0.516 bytes. A matrix is quantised before it is cut; a rank's part has the scales of its own rows or
blocks, and one shared scale for each 64 of its inputs and 256 of its rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

HALF = "half"
Count = Any
"""A number, or an array with one for each plan."""
NF4_BLOCK = 64
NF4_SHARED_BLOCKS = 256
SCALE_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseType:
    """A type of frozen parameters: ``bytes`` of (elements, output rows) on one rank, scales included.

    ``block`` is the number of neighbouring elements along the inputs that no cut may split; 1: any cut is fine.
    """

    bytes: Callable[[Count, Count], Count]
    block: int = 1


def _int8(elements: Count, rows: Count) -> Count:
    return elements + SCALE_BYTES * rows


def _nf4(elements: Count, rows: Count) -> Count:
    shared = elements / (NF4_BLOCK * rows) * -(-rows // NF4_SHARED_BLOCKS)
    return elements / 2 + elements / NF4_BLOCK + SCALE_BYTES * shared


def _half(elements: Count, rows: Count) -> Count:
    return 2 * elements


QUANTISED: Mapping[str, BaseType] = {
    "int8": BaseType(bytes=_int8),
    "nf4": BaseType(bytes=_nf4, block=NF4_BLOCK),
}
"""Quantised types by name."""
BASE_TYPES: Mapping[str, BaseType] = {HALF: BaseType(bytes=_half), **QUANTISED}
"""All types of frozen parameters, by ``Parameter.storage``."""


def stored_bytes(base: str, elements: Count, rows: Count, matrices: Count = 1) -> Count:
    """Return the bytes of equal matrices that have so many elements and output rows together."""
    return matrices * BASE_TYPES[base].bytes(elements / matrices, rows / matrices)
