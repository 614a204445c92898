"""Update parts of a range of states with the same bits as an update of the whole range.

PyTorch's fused optimizers process a range in vectors, and its last elements, fewer than a vector, one by one. The two
round differently. So where a range is divided between device and host, each part is stepped as the whole would be: what
was in vectors in vectors, filled up with unused elements, and what was at the end of the range one by one.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from torch.optim.adamw import adamw

from meshwright.runtime.state.on_host.shard_split import Ranges, Split, merged

ELEMENTS = 512
"""Elements of a range that is stepped in pieces, to see how long a vector is."""


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
    return Lanes(whole, (), vector_width(dtype))


@cache
def vector_width(dtype: torch.dtype) -> int:
    """Return the elements of a vector of the fused optimizers: the shortest pieces that are stepped with equal bits.

    Measured, because the optimizers need not use the widest vectors that PyTorch finds in a CPU.
    """
    draw = torch.Generator().manual_seed(0)
    buffers = [torch.rand(ELEMENTS, generator=draw, dtype=dtype) for _ in range(4)]
    whole = _stepped(buffers, ELEMENTS)
    width = 1
    while not all(map(torch.equal, _stepped(buffers, width), whole)):
        width *= 2
    return width


def _stepped(buffers: Sequence[torch.Tensor], piece: int) -> list[torch.Tensor]:
    """Return copies of parameters, gradients and both moments after a step in pieces of so many elements."""
    copies = [buffer.clone() for buffer in buffers]
    parameters, gradients, first, second = (list(buffer.split(piece)) for buffer in copies)
    steps = [torch.tensor(3.0) for _ in parameters]
    adamw(
        *(parameters, gradients, first, second, [], steps),
        fused=True,
        amsgrad=False,
        maximize=False,
        lr=1e-3,
        beta1=0.9,
        beta2=0.95,
        weight_decay=0.1,
        eps=1e-8,
    )
    return copies


def lanes(whole: Ranges, split: Split, on_host: bool, dtype: torch.dtype) -> Lanes:
    """Return one side's lanes of ranges of a shard; ``dtype`` is the one of the step."""
    width = vector_width(dtype)
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
