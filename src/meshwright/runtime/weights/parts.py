"""One of our tensors as parts of stored ones: reading a slice of it, and putting it there.

A ``Part`` is a tensor, or one expert's, in a stored tensor, whose ``rows`` are divided into ``runs`` equal stretches;
ours has as many rows of each, from ``first`` on. One run is a plain stack; BLOOM's has one for each head, holding its
query, key and value rows; gpt-oss's one for each row of gate and of up. ``transposed``: rows are the last dim of what
is stored. ``stack``: the stored tensor has so many experts along dim 0, of which this is one.

A ``Place`` is all parts of a tensor: one, or one for each expert, which are stacked along our dim 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


class StoredTensor(Protocol):
    """A tensor in a file, of which only what is asked for is read."""

    def __getitem__(self, key: tuple[slice, ...]) -> Tensor:
        """The elements in these slices."""

    def get_shape(self) -> list[int]:
        """Its shape."""

    def get_dtype(self) -> Any:
        """The format's own name of its dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Where a tensor of ``shape`` lies. ``rows`` is None where the stored tensor holds nothing else of it."""

    name: str
    shape: tuple[int, ...]
    rows: int | None = None
    first: int = 0
    runs: int = 1
    transposed: bool = False
    stack: tuple[int, int] | None = None

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape of the whole stored tensor."""
        shape = (self.rows or self.shape[0], *self.shape[1:])
        shape = shape[::-1] if self.transposed else shape
        return shape if self.stack is None else (self.stack[1], *shape)

    def read(self, stored: StoredTensor, wanted: Sequence[slice] = ()) -> Tensor:
        """Our tensor, or the part of it in ``wanted``: contiguous slices of the leading dims."""
        start, stop = _bounds(wanted[0] if wanted else slice(None), self.shape[0])
        others = tuple(
            slice(*_bounds(cut, size)) for cut, size in zip(wanted[1:], self.shape[1:], strict=False)
        )
        others += tuple(slice(0, size) for size in self.shape[1 + len(others) :])
        if self.shape[0] == self.runs > 1:
            stride = (self.rows or self.shape[0]) // self.runs
            taking_turns = self._rows(stored, slice(start * stride, stop * stride), others)
            return taking_turns[self.first :: stride].contiguous()
        pieces = [self._rows(stored, rows, others) for rows in self._stored_rows(start, stop)]
        return torch.cat(pieces) if len(pieces) > 1 else pieces[0]

    def put(self, tensor: Tensor, stored: Tensor) -> None:
        """Write our tensor into its place."""
        target = stored if self.stack is None else stored[self.stack[0]]
        target = target.T if self.transposed else target
        length = self.shape[0] // self.runs
        target.unflatten(0, (self.runs, -1))[:, self.first : self.first + length] = tensor.unflatten(
            0, (self.runs, length)
        )

    def _stored_rows(self, start: int, stop: int) -> list[slice]:
        """The stored rows of our rows start..stop, run by run; one empty slice where there are none."""
        length, stride = self.shape[0] // self.runs, (self.rows or self.shape[0]) // self.runs
        found = []
        for run in range(start // length, -(-stop // length)):
            low, high = max(start, run * length), min(stop, (run + 1) * length)
            offset = run * (stride - length) + self.first
            found.append(slice(low + offset, high + offset))
        return found or [slice(0, 0)]

    def _rows(self, stored: StoredTensor, rows: slice, others: tuple[slice, ...]) -> Tensor:
        key = (*others, rows) if self.transposed else (rows, *others)
        if self.stack is None:
            read = stored[key]
        else:
            expert = self.stack[0]
            read = stored[(slice(expert, expert + 1), *key)][0]
        return read.T.contiguous() if self.transposed else read


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor of ``shape`` lies: in ``parts``, one, or one for each index of its dim 0."""

    shape: tuple[int, ...]
    parts: tuple[Part, ...]

    def needed(self, wanted: Sequence[slice]) -> tuple[Part, ...]:
        """The parts from which a slice is read; of nothing all are looked at."""
        if not self._stacked:
            return self.parts
        cut = slice(*_bounds(wanted[0] if wanted else slice(None), len(self.parts)))
        return self.parts[cut] or self.parts

    def read(self, stored: Callable[[Part], StoredTensor], wanted: Sequence[slice] = ()) -> Tensor:
        """The tensor, or the part of it in ``wanted``: contiguous slices of the leading dims."""
        if not self._stacked:
            return self.parts[0].read(stored(self.parts[0]), wanted)
        start, stop = _bounds(wanted[0] if wanted else slice(None), len(self.parts))
        pieces = [part.read(stored(part), wanted[1:]) for part in self.needed(wanted)]
        return torch.stack(pieces)[: stop - start]

    def piece(self, tensor: Tensor, index: int) -> Tensor:
        """What of our tensor the part of this index takes."""
        return tensor[index] if self._stacked else tensor

    @property
    def _stacked(self) -> bool:
        return len(self.parts[0].shape) < len(self.shape)


def _bounds(cut: slice, size: int) -> tuple[int, int]:
    """First and last of a contiguous slice, the last never before the first."""
    start, stop, step = cut.indices(size)
    assert step == 1, "only contiguous slices are read"
    return start, max(start, stop)
