"""Read one of our tensors from parts of stored ones, and write it there.

A ``Part`` is a tensor, or one expert's, in a stored tensor, whose ``rows`` are divided into ``runs`` equal ranges;
ours has an equal number of rows of each, from ``first`` on. One run is a plain stack; BLOOM's has one for each head,
holding its query, key and value rows; gpt-oss's one for each row of gate and of up. ``transposed``: rows are the last
dim of the stored tensor. ``stack`` (index, count): the stored tensor stacks the experts along dim 0. ``columns``: the
stored tensor's dims after the first, which are one dim of ours (the channels, frames, height and width of a patch).

A ``Place`` is all parts of a tensor: one, or one for each expert, which are stacked along our dim 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


class StoredTensor(Protocol):
    """A tensor in a file, of which only the requested slices are read."""

    def __getitem__(self, key: tuple[slice, ...]) -> Tensor:
        """Return the elements in these slices."""

    def get_shape(self) -> list[int]:
        """Return the shape."""

    def get_dtype(self) -> Any:
        """Return the format's name of the dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The place of a tensor of ``shape`` in a stored one. ``rows`` is None if the stored tensor holds nothing else."""

    name: str
    shape: tuple[int, ...]
    rows: int | None = None
    first: int = 0
    runs: int = 1
    transposed: bool = False
    stack: tuple[int, int] | None = None
    columns: tuple[int, ...] = ()

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape of the whole stored tensor."""
        shape = (self.rows or self.shape[0], *(self.columns or self.shape[1:]))
        shape = shape[::-1] if self.transposed else shape
        return shape if self.stack is None else (self.stack[1], *shape)

    def read(self, stored: StoredTensor, slices: Sequence[slice] = ()) -> Tensor:
        """Read our tensor, or the part of it in ``slices``: contiguous slices of the leading dims."""
        start, stop = _bounds(slices[0] if slices else slice(None), self.shape[0])
        others = tuple(
            slice(*_bounds(cut, size)) for cut, size in zip(slices[1:], self.shape[1:], strict=False)
        )
        others += tuple(slice(0, size) for size in self.shape[1 + len(others) :])
        if self.shape[0] == self.runs > 1:
            stride = (self.rows or self.shape[0]) // self.runs
            taking_turns = self._rows(stored, slice(start * stride, stop * stride), others)
            return taking_turns[self.first :: stride].contiguous()
        pieces = [self._rows(stored, rows, others) for rows in self._stored_rows(start, stop)]
        return torch.cat(pieces) if len(pieces) > 1 else pieces[0]

    def put(self, tensor: Tensor, stored: Tensor) -> None:
        """Write our tensor into the stored one."""
        target = stored if self.stack is None else stored[self.stack[0]]
        target = target.flatten(1) if self.columns else target.T if self.transposed else target
        length = self.shape[0] // self.runs
        target.unflatten(0, (self.runs, -1))[:, self.first : self.first + length] = tensor.unflatten(
            0, (self.runs, length)
        )

    def _stored_rows(self, start: int, stop: int) -> list[slice]:
        """Return the stored rows of our rows start..stop, run by run; one empty slice if there are none."""
        length, stride = self.shape[0] // self.runs, (self.rows or self.shape[0]) // self.runs
        found = []
        for run in range(start // length, -(-stop // length)):
            low, high = max(start, run * length), min(stop, (run + 1) * length)
            offset = run * (stride - length) + self.first
            found.append(slice(low + offset, high + offset))
        return found or [slice(0, 0)]

    def _rows(self, stored: StoredTensor, rows: slice, others: tuple[slice, ...]) -> Tensor:
        if self.columns:
            return stored[(rows, *map(slice, self.columns))].flatten(1)[:, *others].contiguous()
        key = (*others, rows) if self.transposed else (rows, *others)
        if self.stack is None:
            read = stored[key]
        else:
            expert = self.stack[0]
            read = stored[(slice(expert, expert + 1), *key)][0]
        return read.T.contiguous() if self.transposed else read


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a tensor of ``shape``: one part, or one for each index of its dim 0."""

    shape: tuple[int, ...]
    parts: tuple[Part, ...]

    def needed(self, slices: Sequence[slice]) -> tuple[Part, ...]:
        """Return the parts that a slice is read from; all parts for an empty slice."""
        if not self._stacked:
            return self.parts
        cut = slice(*_bounds(slices[0] if slices else slice(None), len(self.parts)))
        return self.parts[cut] or self.parts

    def read(self, stored: Callable[[Part], StoredTensor], slices: Sequence[slice] = ()) -> Tensor:
        """Read the tensor, or the part of it in ``slices``: contiguous slices of the leading dims."""
        if not self._stacked:
            return self.parts[0].read(stored(self.parts[0]), slices)
        start, stop = _bounds(slices[0] if slices else slice(None), len(self.parts))
        pieces = [part.read(stored(part), slices[1:]) for part in self.needed(slices)]
        return torch.stack(pieces)[: stop - start]

    def piece(self, tensor: Tensor, index: int) -> Tensor:
        """Return the piece of our tensor that belongs to the part of this index."""
        return tensor[index] if self._stacked else tensor

    @property
    def _stacked(self) -> bool:
        return len(self.parts[0].shape) < len(self.shape)


def _bounds(cut: slice, size: int) -> tuple[int, int]:
    """Return the bounds of a contiguous slice, with stop no less than start."""
    start, stop, step = cut.indices(size)
    assert step == 1, "only contiguous slices are read"
    return start, max(start, stop)
