"""Cut whole tensors into the pieces of ranks' shards, and put them together again.

A piece is a contiguous range of one flattened parameter on one rank. Whole tensors are put together from the pieces of
all ranks; ranges that several ranks hold must agree.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

import torch

from meshwright.program.rank_units.unit_layout import Cut
from meshwright.runtime.state.sharded_unit import Unit


class CopiesDifferError(AssertionError):
    """Ranks hold other values of the same elements; the message is the tensor's name."""


@dataclass(frozen=True)
class Piece:
    """Elements start … of the flattened local tensor of ``shape``, the part at ``cuts`` of the whole tensor."""

    name: str
    whole_shape: tuple[int, ...]
    shape: tuple[int, ...]
    cuts: tuple[Cut, ...]
    start: int
    values: torch.Tensor


def pieces_of(unit: Unit, shard: torch.Tensor) -> Iterator[Piece]:
    """Yield the pieces of a buffer that is laid out like a unit's shard."""
    tensors = {t.name: t for t in unit.layout.tensors}
    for name, of, here in unit.spans():
        t = tensors[name]
        yield Piece(name, t.whole_shape, t.shape, t.cuts, of.start, shard[here].detach().clone())


def whole_tensors(pieces: Iterable[Piece]) -> dict[str, torch.Tensor]:
    """Put every tensor together. Raises AssertionError if elements are missing or copies differ."""
    locals_: dict[tuple[str, tuple[Cut, ...]], tuple[Piece, torch.Tensor]] = {}
    for piece in pieces:
        key = piece.name, piece.cuts
        if key not in locals_:
            flat = torch.full((prod(piece.shape),), float("nan"), dtype=piece.values.dtype)
            locals_[key] = piece, flat
        flat = locals_[key][1]
        there = flat[piece.start : piece.start + len(piece.values)]
        known = ~there.isnan()
        assert torch.equal(there[known], piece.values[known]), f"copies of {piece.name} differ"
        there.copy_(piece.values)
    wholes: dict[str, torch.Tensor] = {}
    for piece, flat in locals_.values():
        whole = wholes.setdefault(piece.name, torch.full(piece.whole_shape, float("nan"), dtype=flat.dtype))
        local = flat.view(piece.shape)
        for cut in piece.cuts:  # drop the padding
            local = local.narrow(cut.dim, 0, cut.stop - cut.start)
        there = whole[places_of(piece.cuts, piece.whole_shape)]
        known = ~there.isnan()  # ranks of another layout may hold other cuts of a tensor
        if not torch.equal(there[known], local[known]):
            raise CopiesDifferError(piece.name)
        whole[places_of(piece.cuts, piece.whole_shape)] = local
    for name, whole in wholes.items():
        assert not whole.isnan().any(), f"elements of {name} are missing"
    return wholes


def local_part(whole: Mapping[str, torch.Tensor], unit: Unit) -> dict[str, torch.Tensor]:
    """Return a unit's tensors as this rank holds them, without padding."""
    wholes = ((t, whole[t.name]) for t in unit.layout.tensors)
    return {t.name: part[places_of(t.cuts, t.whole_shape)] for t, part in wholes}


def places_of(cuts: Iterable[Cut], whole_shape: tuple[int, ...]) -> tuple[slice | list[int], ...]:
    """Return the index of cuts into a whole tensor, one entry per dim; at most one lists rows."""
    found: list[slice | list[int]] = [slice(None)] * len(whole_shape)
    for dim, start, stop, rows in cuts:
        found[dim] = slice(start, stop) if rows is None else list(rows)
    return tuple(found)
