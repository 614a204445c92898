"""Measure the error between two sets of tensors, and check that copies of a shard on several ranks are bitwise equal.

The error of a parameter is max|g − g_ref| / max(max|g_ref|, 10⁻³ · the largest |g_ref| of all parameters): relative to
the parameter itself, but not to the rounding of values near zero.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType

import torch

from meshwright.program.rank_units.unit_layout import Cut
from meshwright.runtime.state.shard_pieces import CopiesDifferError, Piece, whole_tensors

FLOOR = 1e-3


@dataclass(frozen=True, slots=True)
class Error:
    """A relative error and the quantity that has it; infinite if a value is not finite."""

    value: float
    of: str


def worst(errors: Iterable[Error]) -> Error:
    """Return the largest error."""
    return max(errors, key=lambda error: error.value)


def number_error(found: float, expected: float, of: str, least: float = 0.0) -> Error:
    """Return the error of a number relative to itself, or to ``least`` if that is more."""
    value = abs(found - expected) / max(abs(expected), least)
    return Error(value if value == value else inf, of)


def tensor_error(
    found: Mapping[str, torch.Tensor],
    expected: Mapping[str, torch.Tensor],
    slack: Mapping[str, torch.Tensor] = MappingProxyType({}),
    least: float = 0.0,
) -> Error:
    """Return the error of the worst parameter; differences up to its ``slack`` count as none.

    It is relative to ``least`` at least.
    """
    assert found.keys() == expected.keys(), sorted(found.keys() ^ expected.keys())
    largest = max(float(tensor.abs().max()) for tensor in expected.values())
    errors = []
    for name, tensor in expected.items():
        scale = max(float(tensor.abs().max()), FLOOR * largest, least)
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
        key = piece.name, piece.cuts, piece.start
        known = first.setdefault(key, piece)
        if not _same_bits(known.values, piece.values):
            differing[piece.name] = None
        if len(piece.values) > len(known.values):
            first[key] = piece
    undefined = [piece.name for piece in first.values() if not piece.values.isfinite().all()]
    if undefined:
        return {}, list(dict.fromkeys(undefined))
    try:
        return whole_tensors(first.values()), list(differing)
    except CopiesDifferError as differ:
        return {}, [*differing, str(differ)]


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Compare pieces as far as both go: in another layout a rank may hold more of a tensor."""
    least = min(len(a), len(b))
    return torch.equal(a[:least].view(torch.int64), b[:least].view(torch.int64))
