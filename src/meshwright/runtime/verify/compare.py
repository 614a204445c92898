"""How far two sets of tensors are apart, and whether copies of a shard on several ranks are the same bits.

The error of a parameter is max|g − g_ref| / max(max|g_ref|, 10⁻³ · the largest |g_ref| of all parameters): relative to
itself, but not to the rounding of what is almost zero.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

import torch

from meshwright.runtime.pieces import Piece, whole_tensors
from meshwright.runtime.unit_layout import Cut

FLOOR = 1e-3


@dataclass(frozen=True, slots=True)
class Error:
    """A relative error and what has it; infinite where a value is not finite."""

    value: float
    of: str


def worst(errors: Iterable[Error]) -> Error:
    """The largest of them."""
    return max(errors, key=lambda error: error.value)


def number_error(found: float, expected: float, of: str) -> Error:
    """The relative error of a number."""
    value = abs(found - expected) / abs(expected)
    return Error(value if value == value else inf, of)


def tensor_error(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> Error:
    """The worst parameter."""
    assert found.keys() == expected.keys(), sorted(found.keys() ^ expected.keys())
    largest = max(float(tensor.abs().max()) for tensor in expected.values())
    errors = []
    for name, tensor in expected.items():
        scale = max(float(tensor.abs().max()), FLOOR * largest)
        value = float((found[name] - tensor).abs().max()) / scale
        errors.append(Error(value if value == value else inf, name))
    return worst(errors)


def joined(pieces: Iterable[Piece]) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Whole tensors from the pieces of all ranks, and the names of those of which copies differ.

    No tensors where a piece holds something that is no number: they count as differing then.
    """
    first: dict[tuple[str, tuple[Cut, ...], int], Piece] = {}
    differing = dict[str, None]()
    for piece in pieces:
        known = first.setdefault((piece.name, piece.cuts, piece.start), piece)
        if not _same_bits(known.values, piece.values):
            differing[piece.name] = None
    undefined = [piece.name for piece in first.values() if not piece.values.isfinite().all()]
    if undefined:
        return {}, list(dict.fromkeys(undefined))
    return whole_tensors(first.values()), list(differing)


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.view(torch.int64), b.view(torch.int64))
