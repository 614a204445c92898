"""Store a rank's master copy and moments in the types of a plan, and open them for the optimizer's arithmetic.

Moments in fp16 and fp8 have one fp32 scale for each piece that a rank owns: its part of one parameter. A piece is
stored divided by its scale, which puts its largest element at the top of the type's range (as in Transformer Engine's
FusedAdam). A scale for several parameters would differ between tp ranks that hold other parts of some and copies of
others, and the copies would drift apart. Other types are rounded to the nearest.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from meshwright.runtime.state.on_host.offloaded_unit import ShardPart
from meshwright.runtime.state.sharded_unit import Unit

SCALED = (torch.float16, torch.float8_e4m3fn)
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class StoredState:
    """A state of a unit's shard; ``scales`` has one element for each of ``pieces``, or none.

    ``ranges`` are the ranges of the shard whose elements have the state, stored one after the other; none if it is the
    state of the whole shard.
    """

    values: torch.Tensor
    scales: torch.Tensor
    pieces: tuple[Ranges, ...]
    ranges: Ranges | None = None

    @classmethod
    def zeros(cls, unit: Unit | ShardPart, dtype: torch.dtype, ranges: Ranges | None = None) -> "StoredState":
        """Return a state of zeros."""
        size = len(unit.owned) if ranges is None else sum(stop - start for start, stop in ranges)
        pieces = pieces_by_parameter(unit, ranges) if dtype in SCALED else ()
        scales = torch.ones(len(pieces), device=unit.device)
        return cls(torch.zeros(size, dtype=dtype, device=unit.device), scales, pieces, ranges)

    def place(self, here: slice) -> slice | None:
        """Return where a range of the shard is in ``values``; None if its elements have no such state."""
        within = self.ranges is None or any(start <= here.start < stop for start, stop in self.ranges)
        return place_in(self.ranges, here) if within else None

    def to(self, dtype: torch.dtype) -> torch.Tensor:
        """Return the state itself, in a dtype; its own memory if that is how it is stored."""
        if self.values.dtype == dtype:
            return self.values
        wide = self.values.to(dtype)
        for scale, piece in zip(self.scales, self.pieces, strict=True):
            for start, stop in piece:
                wide[start:stop] *= scale.to(dtype)
        return wide

    def store(self, wide: torch.Tensor) -> None:
        """Round a state to its type, with new scales."""
        if wide is self.values:
            return
        for number, piece in enumerate(self.pieces):
            scale = scale_of((wide[start:stop] for start, stop in piece), self.values.dtype)
            self.scales[number] = scale
            for start, stop in piece:
                self.values[start:stop] = (wide[start:stop] / scale.to(wide)).to(self.values.dtype)
        if not self.pieces:
            self.values.copy_(wide)

    def scale_at(self, at: int) -> torch.Tensor | None:
        """Return the scale (one element, the state's own memory) of the piece that an element belongs to."""
        for number, piece in enumerate(self.pieces):
            if any(start <= at < stop for start, stop in piece):
                return self.scales[number : number + 1]
        return None

    @property
    def held_bytes(self) -> int:
        """Bytes of the values and their scales."""
        return self.values.nbytes + self.scales.nbytes


def scale_of(parts: Iterator[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """Return the fp32 scale of a piece: its largest magnitude over the type's.

    It is at least the smallest normal number: a smaller one has few bits, and quotients would overflow.
    """
    largest = torch.stack([part.abs().max() for part in parts]).max()
    scale = (largest / torch.finfo(dtype).max).to(torch.float32)
    return scale.clamp(min=torch.finfo(torch.float32).smallest_normal)


def place_in(ranges: Ranges | None, here: slice) -> slice:
    """Return the place of a range of a shard among ``ranges`` that are stored one after the other."""
    if ranges is None:
        return here
    before = 0
    for start, stop in ranges:
        if start <= here.start and here.stop <= stop:
            return slice(before + here.start - start, before + here.stop - start)
        before += stop - start
    raise AssertionError(f"no state is kept of {here}")


def pieces_by_parameter(unit: Unit | ShardPart, ranges: Ranges | None = None) -> tuple[Ranges, ...]:
    """Return the ranges of a state that belong to one parameter, in the order of the shard."""
    found: dict[str, list[tuple[int, int]]] = {}
    for name, _, here in unit.spans():
        if ranges is None or any(start <= here.start < stop for start, stop in ranges):
            place = place_in(ranges, here)
            found.setdefault(name, []).append((place.start, place.stop))
    return tuple(tuple(ranges) for ranges in found.values())


@contextmanager
def opened(states: Sequence[StoredState], dtype: torch.dtype) -> Iterator[list[torch.Tensor]]:
    """Lend states in the dtype of the optimizer's arithmetic, and store them afterwards."""
    wide = [state.to(dtype) for state in states]
    yield wide
    for state, changed in zip(states, wide, strict=True):
        state.store(changed)
