"""One of our tensors as a part of a stored one: reading a slice of it, and putting it there.

The stored tensor's ``rows`` are divided into ``runs`` equal stretches; ours has as many rows of each, from ``first``
on. One run is a plain stack; BLOOM's has one for each head, holding its query, key and value rows. ``transposed``:
rows are dim 1 of what is stored.
"""

from collections.abc import Sequence
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
    """Where a tensor of ``shape`` lies. ``rows`` is None where the stored tensor holds nothing else."""

    name: str
    shape: tuple[int, ...]
    rows: int | None = None
    first: int = 0
    runs: int = 1
    transposed: bool = False

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape of the whole stored tensor."""
        shape = (self.rows or self.shape[0], *self.shape[1:])
        return shape[::-1] if self.transposed else shape

    def read(self, stored: StoredTensor, wanted: Sequence[slice] = ()) -> Tensor:
        """Our tensor, or the part of it in ``wanted``: contiguous slices of the leading dims."""
        start, stop = _bounds(wanted[0] if wanted else slice(None), self.shape[0])
        others = tuple(
            slice(*_bounds(cut, size)) for cut, size in zip(wanted[1:], self.shape[1:], strict=False)
        )
        others += tuple(slice(0, size) for size in self.shape[1 + len(others) :])
        pieces = [self._rows(stored, rows, others) for rows in self._stored_rows(start, stop)]
        return torch.cat(pieces) if len(pieces) > 1 else pieces[0]

    def put(self, tensor: Tensor, stored: Tensor) -> None:
        """Write our tensor into its place."""
        target = stored.T if self.transposed else stored
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
        if self.transposed:
            return stored[(*others, rows)].T.contiguous()
        return stored[(rows, *others)]


def _bounds(cut: slice, size: int) -> tuple[int, int]:
    start, stop, step = cut.indices(size)
    assert step == 1, "only contiguous slices are read"
    return start, max(start, stop)
