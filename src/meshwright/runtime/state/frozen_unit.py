"""Hold, gather and free the frozen parameters of one unit, as they are stored.

Frozen parameters have no gradients and no optimizer states. A rank keeps its parts of them as one buffer of bytes, with
wide elements first, so that every tensor is aligned. Where parameters are sharded the bytes are cut into equal pieces,
and a gather moves them as they are. A quantised matrix is opened each time it is used, and dropped after that.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, prod
from typing import NamedTuple

import torch

from meshwright.errors import RunError
from meshwright.program.pass_items import Collective
from meshwright.program.rank_units.unit_layout import Tensor, UnitLayout
from meshwright.runtime.comm.communicator import Communicator
from meshwright.runtime.precision import Precision
from meshwright.runtime.state.shard_pieces import places_of
from meshwright.runtime.state.sharded_unit import Steps
from meshwright.runtime.weights.base_quantisation import QUANTISERS, first_row
from meshwright.workload.base_types import HALF, stored_bytes

VALUES = "values"
"""The one piece of a tensor that is not quantised."""


class StoredPlace(NamedTuple):
    """The bytes of a piece of a tensor in a unit's buffer."""

    start: int
    stop: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    def of(self, buffer: torch.Tensor) -> torch.Tensor:
        """Return the piece's view of the buffer."""
        return buffer[self.start : self.stop].view(self.dtype).view(self.shape)


@dataclass
class FrozenUnit:
    """The frozen parameters of a block or stage on one rank. ``owned`` are this rank's bytes; ``name`` for messages."""

    name: str
    layout: UnitLayout
    communicator: Communicator
    precision: Precision
    owned: torch.Tensor = field(init=False)
    whole: torch.Tensor | None = None

    def __post_init__(self) -> None:
        self._tensors = {tensor.name: tensor for tensor in self.layout.tensors}
        self._places: dict[str, dict[str, StoredPlace]] = {name: {} for name in self._tensors}
        at = 0
        for name, piece, dtype, shape in sorted(self._pieces(), key=lambda piece: -piece[2].itemsize):
            stop = at + dtype.itemsize * prod(shape)
            self._places[name][piece] = StoredPlace(at, stop, dtype, shape)
            at = stop
        self.part = self.communicator.place_in(self.layout.mesh.shard) if self.layout.parts > 1 else 0
        widest = max(place.dtype.itemsize for pieces in self._places.values() for place in pieces.values())
        size = (
            ceil(at / self.layout.parts / widest) * widest
            if at % widest == 0
            else ceil(at / self.layout.parts)
        )
        self.owned = torch.zeros(size, dtype=torch.uint8, device=self.device)
        self._rows: torch.Tensor | None = None

    @property
    def device(self) -> torch.device:
        """The device of all buffers."""
        return self.communicator.device

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Set this rank's bytes from whole tensors by name; a matrix is quantised before it is cut."""
        flat = torch.zeros(len(self.owned) * self.layout.parts, dtype=torch.uint8, device=self.device)
        for tensor in self.layout.tensors:
            whole = tensors[tensor.name]
            quantiser = QUANTISERS.get(tensor.storage or HALF)
            if quantiser is not None:
                given = quantiser.cut(quantiser.pieces(whole.to(self.precision.compute)), tensor.cuts)
            else:
                given = {VALUES: whole[places_of(tensor.cuts, tensor.whole_shape)]}
            for piece, values in given.items():
                part = self._places[tensor.name][piece].of(flat)
                part[tuple(slice(0, length) for length in values.shape)] = values.to(part)
        self.owned.copy_(flat.view(self.layout.parts, -1)[self.part])

    def gather(self, items: Sequence[Collective]) -> Steps:
        """Gather all bytes from the shards."""
        if self.layout.parts == 1:
            self.whole = self.owned
            return
        if self._rows is None:
            self._rows = torch.empty(
                self.layout.parts * len(self.owned), dtype=torch.uint8, device=self.device
            )
        counted = sum(map(counted_bytes, self.layout.tensors))
        yield self.communicator.start(items[0], self.owned, 1, out=self._rows, elements=counted)
        self.whole = self._rows

    def free(self) -> None:
        """Drop the gathered parameters; unsharded ones stay."""
        if self.layout.parts > 1:
            self.whole = self._rows = None

    def view(self, name: str) -> torch.Tensor:
        """Return a parameter of this rank, opened if it is quantised. Raises RunError if it is not gathered."""
        if self.whole is None:
            raise RunError(
                f"{self.communicator.current.text}: {name} is used while {self.name} is not gathered"
            )
        pieces = {piece: place.of(self.whole) for piece, place in self._places[name].items()}
        tensor = self._tensors[name]
        quantiser = QUANTISERS.get(tensor.storage or HALF)
        if quantiser is None:
            return pieces[VALUES]
        opened = quantiser.opened(pieces, first_row(tensor.cuts, len(tensor.shape)))
        return opened.to(self.precision.compute)

    def rows(self, names: Sequence[str]) -> torch.Tensor:
        """Return adjacent matrices as one: (sum of outputs, inputs)."""
        first = self.view(names[0])
        if len(names) == 1:
            return first
        assert self.whole is not None
        places = [self._places[name][VALUES] for name in names]
        assert all(before.stop == place.start for before, place in pairwise(places)), names
        whole = self.whole[places[0].start : places[-1].stop]
        return whole.view(places[0].dtype).view(-1, places[0].shape[-1])

    @property
    def elements(self) -> torch.Tensor:
        """The rank's elements, of a base without quantised matrices."""
        return self.owned.view(self.precision.compute)

    def spans(self) -> Iterator[tuple[Tensor, slice, slice]]:
        """Yield the parts of parameters among this rank's ``elements``: (tensor, slice of it flat, slice of them)."""
        size, first = len(self.elements), self.part * len(self.elements)
        for tensor in self.layout.tensors:
            place = self._places[tensor.name][VALUES]
            start = place.start // place.dtype.itemsize
            low, high = max(start, first), min(start + tensor.elements, first + size)
            if low < high:
                yield tensor, slice(low - start, high - start), slice(low - first, high - first)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the local shape of a parameter."""
        return self._tensors[name].shape

    def _pieces(self) -> Iterator[tuple[str, str, torch.dtype, tuple[int, ...]]]:
        """Yield the pieces of every tensor: its name, the piece's, dtype and shape on this rank."""
        for tensor in self.layout.tensors:
            quantiser = QUANTISERS.get(tensor.storage or HALF)
            if quantiser is None:
                yield tensor.name, VALUES, self.precision.compute, tensor.shape
                continue
            whole = quantiser.pieces(torch.empty(tensor.whole_shape, device="meta"))
            for piece, part in quantiser.cut(whole, tensor.cuts).items():
                yield tensor.name, piece, part.dtype, tuple(part.shape)


def counted_bytes(tensor: Tensor) -> int:
    """Return a tensor's bytes as the Program counts them: 16 bits an element where a proof has wider ones."""
    rows, matrices = prod(tensor.shape[:-1]), prod(tensor.shape[:-2])
    return ceil(stored_bytes(tensor.storage or HALF, tensor.elements, rows, matrices))
