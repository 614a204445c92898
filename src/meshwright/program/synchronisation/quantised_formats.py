"""The element types of ``quantise``, with all their codes.

``int8`` and ``int4`` split the range from a bucket's smallest to its largest value evenly. The others are tables of
numbers in −1 … 1, times the bucket's largest magnitude:

``e3m0``: a sign and three bits of exponent e: ±2^(e − 7); e = 0 stands for zero (assumed: arXiv 2501.18512 does not
say).

``tree8``, the dynamic tree of arXiv 1511.04561: a sign, z zeros, a one, and f = 6 − z bits that choose one of 2^f equal
parts of 0.1 … 1; the magnitude is 10^−z times the middle of that part. Seven zeros stand for 0, with the sign for 1, as
the author's library has it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

SCALE_BYTES = 4
"""Bytes of a smallest, largest or scaling value: fp32, and counted so in fp64 runs too."""


@dataclass(frozen=True, slots=True)
class QuantisedFormat:
    """``bits`` of a code, ``scales`` of a bucket, and the number for each code; none where codes split a range."""

    bits: int
    scales: int
    codes: tuple[float, ...] = ()

    def bucket_bytes(self, elements: int) -> int:
        """Return the encoded bytes of a bucket."""
        return -(-elements * self.bits // 8) + self.scales * SCALE_BYTES


def _e3m0() -> tuple[float, ...]:
    magnitudes = (0.0, *(2.0 ** (exponent - 7) for exponent in range(1, 8)))
    return (*magnitudes, *(-magnitude for magnitude in magnitudes))


def _tree_magnitude(bits: int) -> float:
    """Return the number for seven bits that are not all zero."""
    fraction_bits = bits.bit_length() - 1
    part = bits - 2**fraction_bits
    return 10.0 ** (fraction_bits - 6) * (0.1 + 0.9 * (part + 0.5) / 2**fraction_bits)


def _tree8() -> tuple[float, ...]:
    magnitudes = [_tree_magnitude(bits) for bits in range(1, 128)]
    return (0.0, *magnitudes, 1.0, *(-magnitude for magnitude in magnitudes))


QUANTISED_FORMATS: Mapping[str, QuantisedFormat] = {
    "int8": QuantisedFormat(8, 2),
    "int4": QuantisedFormat(4, 2),
    "e3m0": QuantisedFormat(4, 1, _e3m0()),
    "tree8": QuantisedFormat(8, 1, _tree8()),
}
"""The types by the names of ``plans/synchronisation/compression.py``."""
