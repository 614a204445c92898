"""Copy the elements that a stored stretch and a rank's memory have in common, block by block of the file."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from meshwright.runtime.checkpoint.chunked_file import ChunkedFile
from meshwright.runtime.checkpoint.shared_elements import Overlap, Places
from meshwright.runtime.checkpoint.stored_index import StoredStretch


@dataclass(frozen=True, eq=False)
class Copy:
    """Elements to copy from a stored stretch: ``overlap`` has their places in ``memory`` and in the stretch.

    ``scale`` multiplies the stored values, which were divided by it.
    """

    memory: torch.Tensor
    overlap: Overlap
    scale: torch.Tensor | None = None


def read_copies(file: ChunkedFile, stored: StoredStretch, copies: list[Copy]) -> None:
    """Read what of a stored stretch is wanted, in the file's order, and copy it. Raises InputError."""
    for first, last in _blocks(file, stored):
        parts = [(copy, part) for copy in copies if len((part := _within(copy.overlap, first, last)).lengths)]
        if not parts:
            continue
        size = stored.dtype.itemsize
        content = file.read(stored.offset + first * size, (last - first) * size)
        values = torch.frombuffer(content, dtype=stored.dtype)
        for copy, part in parts:
            of_copy = values if copy.scale is None else values.to(copy.memory.dtype) * copy.scale
            _copy(copy.memory, of_copy, Overlap(part.first, part.second - first, part.lengths))


def _blocks(file: ChunkedFile, stored: StoredStretch) -> Iterator[tuple[int, int]]:
    """Yield ranges of elements that lie in one chunk of the file; one that lies in two chunks is alone."""
    first, size = 0, stored.dtype.itemsize
    while first < stored.region.length:
        _, stop = file.stored.bounds(file.stored.chunk_of(stored.offset + first * size))
        last = min(stored.region.length, max(first + 1, (stop - stored.offset) // size))
        yield first, last
        first = last


def _within(overlap: Overlap, first: int, last: int) -> Overlap:
    """Return what lies in elements first … last of the second of the two."""
    ends = overlap.second + overlap.lengths
    low = int(np.searchsorted(ends, first, side="right"))
    high = int(np.searchsorted(overlap.second, last, side="left"))
    start = np.maximum(overlap.second[low:high], first)
    stop = np.minimum(ends[low:high], last)
    return Overlap(overlap.first[low:high] + start - overlap.second[low:high], start, stop - start)


def _copy(memory: torch.Tensor, values: torch.Tensor, part: Overlap) -> None:
    """Copy ranges, as one matrix if they are rows at equal distances."""
    count, length = len(part.lengths), int(part.lengths[0])
    steps = [_step(starts) for starts in (part.first, part.second)]
    if count > 2 and all(steps) and bool(np.all(part.lengths == length)):
        here, there = (
            torch.as_strided(flat, (count, length), (step, 1), flat.storage_offset() + int(starts[0]))
            for flat, step, starts in zip((memory, values), steps, (part.first, part.second), strict=True)
        )
        here.copy_(there)
        return
    for here_at, there_at, size in zip(*(places.tolist() for places in part), strict=True):
        memory[here_at : here_at + size].copy_(values[there_at : there_at + size])


def _step(starts: Places) -> int:
    """Return the distance of starts that lie at equal distances; 0 if they do not."""
    steps = np.diff(starts)
    return int(steps[0]) if len(steps) and bool(np.all(steps == steps[0])) and steps[0] > 0 else 0
