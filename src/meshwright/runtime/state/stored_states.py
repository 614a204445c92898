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

from meshwright.runtime.state.hosted_unit import ShardPart
from meshwright.runtime.state.sharded_unit import Unit

SCALED = (torch.float16, torch.float8_e4m3fn)
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class StoredState:
    """A state of a unit's shard; ``scales`` has one element for each of ``pieces``, or none."""

    values: torch.Tensor
    scales: torch.Tensor
    pieces: tuple[Ranges, ...]

    @classmethod
    def zeros(cls, unit: Unit | ShardPart, dtype: torch.dtype) -> "StoredState":
        """Return a state of zeros."""
        pieces = pieces_by_parameter(unit) if dtype in SCALED else ()
        scales = torch.ones(len(pieces), device=unit.device)
        return cls(torch.zeros(len(unit.owned), dtype=dtype, device=unit.device), scales, pieces)

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


def pieces_by_parameter(unit: Unit | ShardPart) -> tuple[Ranges, ...]:
    """Return the ranges of a unit's shard that belong to one parameter, in the order of the shard."""
    found: dict[str, list[tuple[int, int]]] = {}
    for name, _, here in unit.spans():
        found.setdefault(name, []).append((here.start, here.stop))
    return tuple(tuple(ranges) for ranges in found.values())


@contextmanager
def opened(states: Sequence[StoredState], dtype: torch.dtype) -> Iterator[list[torch.Tensor]]:
    """Lend states in the dtype of the optimizer's arithmetic, and store them afterwards."""
    wide = [state.to(dtype) for state in states]
    yield wide
    for state, changed in zip(states, wide, strict=True):
        state.store(changed)
