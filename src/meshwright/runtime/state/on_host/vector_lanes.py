"""Update parts of a range of states with the same bits as an update of the whole range.

PyTorch's fused optimizers process a range in vectors, and its last elements, fewer than a vector, one by one. The two
round differently. So where a range is divided between device and host, each part is stepped as the whole would be: what
was in vectors in vectors, filled up with unused elements, and what was at the end of the range one by one.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from meshwright.runtime.state.on_host.shard_split import Ranges, Split, merged

VECTOR_BYTES = {"AVX512": 64, "AVX2": 32}
"""Bytes of a vector by what PyTorch says of a CPU."""
OTHER_BYTES = 16


@dataclass(frozen=True)
class Lanes:
    """Ranges of one side's memory to step in vectors, and others to step element by element."""

    vectors: Ranges
    singles: Ranges
    width: int

    def __len__(self) -> int:
        return len(self.vectors) + len(self.singles)


def all_in_vectors(whole: Ranges, dtype: torch.dtype) -> Lanes:
    """Return lanes that step every element in a vector: its bits do not depend on where ranges end."""
    return Lanes(whole, (), _width(dtype))


def _width(dtype: torch.dtype) -> int:
    return VECTOR_BYTES.get(torch.backends.cpu.get_cpu_capability(), OTHER_BYTES) // dtype.itemsize


def lanes(whole: Ranges, split: Split, on_host: bool, dtype: torch.dtype) -> Lanes:
    """Return one side's lanes of ranges of a shard; ``dtype`` is the one of the step."""
    width = _width(dtype)
    vectors, singles = list[tuple[int, int]](), list[tuple[int, int]]()
    for start, stop in whole:
        end = stop - (stop - start) % width
        vectors += split.compact(start, end, on_host)
        singles += split.compact(end, stop, on_host)
    return Lanes(merged(vectors), tuple(singles), width)


@contextmanager
def lent(buffers: Sequence[torch.Tensor], where: Lanes) -> Iterator[list[list[torch.Tensor]]]:
    """Lend lanes of buffers for a step, a list for each buffer, and store what was stepped in other memory."""
    bodies = [(start, stop - (stop - start) % where.width) for start, stop in where.vectors]
    ends = [(body[1], stop) for body, (_, stop) in zip(bodies, where.vectors, strict=True) if body[1] < stop]
    in_place = [*(body for body in bodies if body[0] < body[1]), *where.singles]
    filled = [[_filled(buffer[start:stop], where.width) for start, stop in ends] for buffer in buffers]
    yield [
        [*(buffer[start:stop] for start, stop in in_place), *copies]
        for buffer, copies in zip(buffers, filled, strict=True)
    ]
    for buffer, copies in zip(buffers, filled, strict=True):
        for (start, stop), copy in zip(ends, copies, strict=True):
            buffer[start:stop] = copy[: stop - start]


def _filled(values: torch.Tensor, width: int) -> torch.Tensor:
    vector = values.new_ones(width)
    vector[: len(values)] = values
    return vector
