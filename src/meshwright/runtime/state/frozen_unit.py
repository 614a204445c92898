"""Hold, gather and free the frozen parameters of one unit, as they are stored.

Frozen parameters have no gradients and no optimizer states. A rank keeps its parts of them as one buffer of bytes, with
wide elements first, so that every tensor is aligned. Where parameters are sharded the bytes are cut into equal pieces,
and a gather moves them as they are.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import torch

from meshwright.errors import RunError
from meshwright.program.pass_items import Collective
from meshwright.runtime.comm.communicator import Communicator
from meshwright.runtime.precision import Precision
from meshwright.runtime.state.shard_pieces import places_of
from meshwright.runtime.state.sharded_unit import Steps
from meshwright.runtime.state.unit_layout import UnitLayout

BYTES_16 = 2


class StoredPlace(NamedTuple):
    """The bytes of a tensor in a unit's buffer."""

    start: int
    stop: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    def of(self, buffer: torch.Tensor) -> torch.Tensor:
        """Return the tensor's view of the buffer."""
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
        self._places = dict(self._placed())
        self.part = self.communicator.place_in(self.layout.mesh.shard) if self.layout.parts > 1 else 0
        self.owned = torch.zeros(-(-self.bytes // self.layout.parts), dtype=torch.uint8, device=self.device)
        self._rows: torch.Tensor | None = None

    @property
    def device(self) -> torch.device:
        """The device of all buffers."""
        return self.communicator.device

    @property
    def bytes(self) -> int:
        """Bytes of all tensors on a rank, before they are sharded."""
        return max((place.stop for place in self._places.values()), default=0)

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Set this rank's bytes from whole tensors by name."""
        flat = torch.zeros(len(self.owned) * self.layout.parts, dtype=torch.uint8, device=self.device)
        for tensor in self.layout.tensors:
            part = self._places[tensor.name].of(flat)
            given = tensors[tensor.name][places_of(tensor.cuts, tensor.whole_shape)].to(part)
            part[tuple(slice(0, length) for length in given.shape)] = given
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
        yield self.communicator.start(items[0], self.owned, 1, out=self._rows, elements=self._counted)
        self.whole = self._rows

    def free(self) -> None:
        """Drop the gathered parameters; unsharded ones stay."""
        if self.layout.parts > 1:
            self.whole = self._rows = None

    def view(self, name: str) -> torch.Tensor:
        """Return a parameter of this rank. Raises RunError if it is not gathered."""
        if self.whole is None:
            raise RunError(f"{self.communicator.action}: {name} is used while {self.name} is not gathered")
        return self._places[name].of(self.whole)

    def rows(self, names: Sequence[str]) -> torch.Tensor:
        """Return adjacent matrices as one: (sum of outputs, inputs)."""
        first = self.view(names[0])
        if len(names) == 1:
            return first
        assert self.whole is not None
        places = [self._places[name] for name in names]
        assert all(before.stop == place.start for before, place in itertools.pairwise(places)), names
        whole = self.whole[places[0].start : places[-1].stop]
        return whole.view(places[0].dtype).view(-1, places[0].shape[-1])

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the local shape of a parameter."""
        return self._places[name].shape

    @property
    def _counted(self) -> int:
        """The bytes that the Program counts: 16 bits for each element, also in a proof, which has wider ones."""
        return sum(BYTES_16 * tensor.elements for tensor in self.layout.tensors)

    def _placed(self) -> Iterator[tuple[str, StoredPlace]]:
        at = 0
        for tensor in self.layout.tensors:
            dtype = self.precision.compute
            size = dtype.itemsize * prod(tensor.shape)
            yield tensor.name, StoredPlace(at, at + size, dtype, tensor.shape)
            at += size
