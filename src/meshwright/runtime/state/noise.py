"""Normal noise of parameters that depends on seed, step, parameter and element alone.

Element i of a parameter has 64 random bits, SplitMix64 (Steele et al., OOPSLA 2014) of a key and i, and from these one
number of Box and Muller: √(−2 ln u)·cos 2πv. A rank makes the noise of just the elements that it holds, wherever they
lie in the whole parameter, and makes it again when it needs it again.

Logarithm and cosine are polynomials in single products and sums of fp32, each of which every device rounds in the same
way: noise has the same bits on all of them, in blocks of any size. It is within 10⁻⁴ of the exact formula.
"""

from hashlib import blake2b
from math import factorial, log, pi

import torch

GOLDEN = 0x9E3779B97F4A7C15
MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST_SHIFT = 31
WORD = 2**32 - 1
QUARTER = 2**30
"""A quarter of the turns that 32 bits count."""
LOGARITHM = (2 / 9, 2 / 7, 2 / 5, 2 / 3, 2.0)
"""Coefficients of ln m in odd powers of t = (m − 1)/(m + 1), the highest first."""
COSINE = tuple((-1) ** k * (pi / 2) ** (2 * k) / factorial(2 * k) for k in reversed(range(7)))
"""Coefficients of cos(πy/2) in powers of y², the highest first."""
ROOT_HALF = 0.5**0.5


def noise_key(seed: int, step: int, name: str) -> int:
    """Return the key of a parameter's noise in a step."""
    return int.from_bytes(blake2b(f"{seed}/{step}/{name}".encode(), digest_size=8).digest())


def noise(key: int, elements: torch.Tensor) -> torch.Tensor:
    """Return the noise of elements of a parameter, by their int64 indices in the whole parameter, in fp32."""
    bits = random_bits(key, elements)
    return _radius(_shifted(bits, 32) + 1) * _cosine(bits & WORD)


def random_bits(key: int, elements: torch.Tensor) -> torch.Tensor:
    """Return 64 random bits for each element."""
    bits = elements * _signed(GOLDEN) + _signed((key + GOLDEN) % 2**64)
    for shift, factor in MIX:
        bits = (bits ^ _shifted(bits, shift)) * _signed(factor)
    return bits ^ _shifted(bits, LAST_SHIFT)


def _radius(number: torch.Tensor) -> torch.Tensor:
    """Return √(−2 ln u) for u = number / 2³², number from 1 to 2³²."""
    part, exponent = torch.frexp(number.to(torch.float32))
    low = part < ROOT_HALF
    part = torch.where(low, part * 2, part)
    halvings = (32 - exponent + low.to(exponent.dtype)).to(torch.float32)
    t = (part - 1) / (part + 1)
    logarithm = _polynomial(LOGARITHM, t * t) * t
    return ((halvings * log(2) - logarithm) * 2).sqrt()


def _cosine(turn: torch.Tensor) -> torch.Tensor:
    """Return cos 2πv for v = turn / 2³²."""
    quarter, rest = turn // QUARTER, turn % QUARTER
    y = torch.where(quarter % 2 == 1, QUARTER - rest, rest).to(torch.float32) * (1 / QUARTER)
    sign = 1 - (((quarter + 1) // 2) % 2) * 2
    return _polynomial(COSINE, y * y) * sign.to(torch.float32)


def _polynomial(coefficients: tuple[float, ...], x: torch.Tensor) -> torch.Tensor:
    result = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result


def _shifted(bits: torch.Tensor, by: int) -> torch.Tensor:
    """Shift right and fill with zeros; torch's own shift repeats the sign."""
    return (bits >> by) & (2 ** (64 - by) - 1)


def _signed(number: int) -> int:
    """Return the int64 with the same bits."""
    return number - 2**64 if number >= 2**63 else number
