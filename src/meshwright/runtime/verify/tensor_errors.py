"""Measure the error between two sets of tensors, and check that copies of a shard on several ranks are bitwise equal.

The error of a parameter is max|g − g_ref| / max(max|g_ref|, 10⁻³ · the largest |g_ref| of all parameters): relative to
the parameter itself, but not to the rounding of values near zero.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType

import torch

from meshwright.runtime.state.shard_pieces import Piece, whole_tensors
from meshwright.runtime.state.unit_layout import Cut

FLOOR = 1e-3


@dataclass(frozen=True, slots=True)
class Error:
    """A relative error and the quantity that has it; infinite if a value is not finite."""

    value: float
    of: str


def worst(errors: Iterable[Error]) -> Error:
    """Return the largest error."""
    return max(errors, key=lambda error: error.value)


def number_error(found: float, expected: float, of: str) -> Error:
    """Return the relative error of a number."""
    value = abs(found - expected) / abs(expected)
    return Error(value if value == value else inf, of)


def tensor_error(
    found: Mapping[str, torch.Tensor],
    expected: Mapping[str, torch.Tensor],
    slack: Mapping[str, torch.Tensor] = MappingProxyType({}),
) -> Error:
    """Return the error of the worst parameter; differences up to its ``slack`` count as none."""
    assert found.keys() == expected.keys(), sorted(found.keys() ^ expected.keys())
    largest = max(float(tensor.abs().max()) for tensor in expected.values())
    errors = []
    for name, tensor in expected.items():
        scale = max(float(tensor.abs().max()), FLOOR * largest)
        apart = (found[name] - tensor).abs()
        apart = (apart - slack[name]).clamp(min=0) if name in slack else apart
        value = float(apart.max()) / scale
        errors.append(Error(value if value == value else inf, name))
    return worst(errors)


def joined(pieces: Iterable[Piece]) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Return whole tensors from the pieces of all ranks, and the names of tensors whose copies differ.

    If a piece is not finite, no tensors are returned, and those with such pieces count as differing.
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
