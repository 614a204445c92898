"""Divide a rank's shards between its device and its host.

Of each parameter that a rank owns, or the piece of it in its shard, the first elements are on the host. Shares are cut
in whole elements of all that the rank holds: of its first n elements ⌊share · n⌋ are on the host, in the order of its
units and of each shard, as the ledger counts them (``program/model_states/states_on_host.py``).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import floor
from typing import NamedTuple

import torch

from meshwright.runtime.comm.host_link import HostLink

Ranges = tuple[tuple[int, int], ...]


class Segment(NamedTuple):
    """A range of a shard, and the place of its first element in the memory of its side."""

    start: int
    stop: int
    on_host: bool
    at: int


@dataclass(frozen=True)
class Split:
    """Disjoint ranges of a shard on the device and on the host; together they are all of it."""

    device: Ranges
    host: Ranges

    def side(self, on_host: bool) -> Ranges:
        """Return the ranges of one side."""
        return self.host if on_host else self.device

    def elements(self, on_host: bool) -> int:
        """Return the number of elements of one side."""
        return sum(stop - start for start, stop in self.side(on_host))

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The ranges of both sides in the order of the shard."""
        found = []
        for on_host in (False, True):
            at = 0
            for start, stop in self.side(on_host):
                found.append(Segment(start, stop, on_host, at))
                at += stop - start
        return tuple(sorted(found))

    @cached_property
    def _starts(self) -> list[int]:
        return [segment.start for segment in self.segments]

    def within(self, start: int, stop: int) -> Iterator[Segment]:
        """Yield the parts of a range of the shard, in order."""
        first = max(0, bisect_right(self._starts, start) - 1)
        for segment in self.segments[first : bisect_left(self._starts, stop)]:
            low, high = max(start, segment.start), min(stop, segment.stop)
            if low < high:
                yield Segment(low, high, segment.on_host, segment.at + low - segment.start)

    def compact(self, start: int, stop: int, on_host: bool) -> Iterator[tuple[int, int]]:
        """Yield where the memory of one side holds a range of the shard."""
        for part in self.within(start, stop):
            if part.on_host == on_host:
                yield part.at, part.at + part.stop - part.start


@dataclass
class ShareCut:
    """Cut shares of a rank's elements, piece by piece; ``seen`` counts the elements so far."""

    share: float
    seen: int = 0

    def split(self, pieces: Iterable[tuple[int, int]]) -> Split:
        """Return the split of a shard that consists of these pieces."""
        device, host = list[tuple[int, int]](), list[tuple[int, int]]()
        for start, stop in pieces:
            before = floor(self.share * self.seen)
            self.seen += stop - start
            middle = start + floor(self.share * self.seen) - before
            host.append((start, middle))
            device.append((middle, stop))
        return Split(merged(device), merged(host))


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return ranges without empty ones, adjacent ones as one."""
    found: list[tuple[int, int]] = []
    for start, stop in ranges:
        if start == stop:
            continue
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return tuple(found)


@dataclass(frozen=True)
class SplitShard:
    """A state of a shard in the memory of both sides."""

    split: Split
    device: torch.Tensor
    host: torch.Tensor

    @classmethod
    def zeros(cls, split: Split, dtype: torch.dtype, link: HostLink) -> "SplitShard":
        """Return a state of zeros."""
        here = torch.zeros(split.elements(False), dtype=dtype, device=link.device)
        return cls(split, here, link.host_zeros(split.elements(True), dtype))

    def side(self, on_host: bool) -> torch.Tensor:
        """Return the memory of one side."""
        return self.host if on_host else self.device

    def memory(self, start: int, stop: int) -> list[torch.Tensor]:
        """Return a range of the shard as views of the state's own memory, in order."""
        return [
            self.side(part.on_host)[part.at : part.at + part.stop - part.start]
            for part in self.split.within(start, stop)
        ]

    def read(self, start: int, stop: int) -> torch.Tensor:
        """Return a copy of a range of the shard on the device."""
        parts = [part.to(self.device.device) for part in self.memory(start, stop)]
        return torch.cat(parts) if parts else self.device[:0].clone()

    def write(self, start: int, values: torch.Tensor) -> None:
        """Set a range of the shard."""
        parts = self.memory(start, start + len(values))
        for part, given in zip(parts, values.split([len(part) for part in parts]), strict=True):
            part.copy_(given)

    @property
    def whole(self) -> torch.Tensor:
        """A copy of the shard on the device."""
        return self.read(0, len(self.device) + len(self.host))


def part_of(shard: torch.Tensor, ranges: Ranges) -> torch.Tensor:
    """Return ranges of a shard, one after the other; a view if it is one range."""
    if len(ranges) == 1:
        return shard[ranges[0][0] : ranges[0][1]]
    return torch.cat([shard[start:stop] for start, stop in ranges]) if ranges else shard[:0]
