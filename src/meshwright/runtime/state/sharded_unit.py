"""Gather, free and reduce the parameters of one unit by explicit calls.

=========  ======================================================================================================
buffer     what it is
=========  ======================================================================================================
owned      this rank's shard of the parameters, in the optimizer's dtype; authoritative between steps
whole      all parameters of the unit in the compute dtype: gathered, or always present if not sharded
           (the same memory as ``owned`` if the dtypes agree)
gradient   gradients of all parameters of the unit, from the first weight gradient to the reduction; those of vectors
           (norms, biases), which I computes before any W has run, wait in buffers of their own
reduced    this rank's shard of the summed gradients, which the optimizer reads
=========  ======================================================================================================

Nothing else ever holds these buffers: operators ask a unit for a view each time they use a parameter, in the forward
pass and again in the backward pass. So dropping the reference frees the memory, and using a parameter that is not
gathered is an error with its name.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from meshwright.errors import RunError
from meshwright.program.model_states.data_parallel_collectives import GATHERED_BYTES
from meshwright.program.pass_items import Collective
from meshwright.runtime.comm.communicator import Communicator, Work
from meshwright.runtime.precision import Precision
from meshwright.runtime.state.unit_layout import UnitLayout

TP = ("tp",)
Steps = Generator[Work, None, None]
"""An exchange of several operations in sequence: each is yielded after it has started."""


class _Place(NamedTuple):
    """The range of a parameter in a unit's buffers."""

    start: int
    stop: int
    shape: tuple[int, ...]

    def of(self, buffer: torch.Tensor) -> torch.Tensor:
        """Return the parameter's view of a buffer of the unit."""
        return buffer[self.start : self.stop].view(self.shape)


@dataclass
class Unit:
    """The parameters of a block or stage on one rank. ``name`` is for messages."""

    name: str
    layout: UnitLayout
    communicator: Communicator
    precision: Precision
    sequence_parallel: bool
    accumulates: bool
    gradient_width: int
    owned: torch.Tensor = field(init=False)
    whole: torch.Tensor | None = None
    gradient: torch.Tensor | None = None
    reduced: torch.Tensor | None = None

    def __post_init__(self) -> None:
        self.owned = torch.zeros(self.layout.shard, dtype=self.precision.master, device=self.device)
        self.part = self.communicator.place_in(self.layout.mesh.shard) if self.layout.parts > 1 else 0
        starts = self.layout.starts
        self._places = {
            t.name: _Place(starts[t.name], starts[t.name] + t.elements, t.shape) for t in self.layout.tensors
        }
        # reused memory: of ``whole`` until it is freed, of ``gradient`` if a step fills it once
        self._rows: torch.Tensor | None = None
        self._room: torch.Tensor | None = None
        self._unwritten: set[str] = set()
        self._early: dict[str, torch.Tensor] = {}

    @property
    def device(self) -> torch.device:
        """The device of all buffers."""
        return self.communicator.device

    # -- parameters ---------------------------------------------------------------------------------------------

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Set this rank's shard from local tensors by name."""
        flat = torch.zeros(self.layout.size, dtype=self.precision.master, device=self.device)
        for name, place in self._places.items():
            part = place.of(flat)
            given = tensors[name].to(part)
            part[tuple(slice(0, length) for length in given.shape)] = given
        shard_of_flat(self.layout, self.part, flat, self.owned)

    def gather(self, items: Sequence[Collective]) -> Steps:
        """Gather all parameters from the shards."""
        own = self.owned.to(self.precision.compute)
        if not items:
            self.whole = own[: self.layout.size]
            return
        if self._rows is None:
            self._rows = torch.empty(self.layout.parts * len(own), dtype=own.dtype, device=self.device)
        yield self.communicator.start(
            items[0], own, GATHERED_BYTES, out=self._rows, elements=self.layout.size
        )
        self.whole = flat_of_shards(self.layout, self._rows)
        if self.layout.shared:  # flat_of_shards has made a copy
            self._rows = None

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
        return self._fused(self.whole, names)

    # -- gradients ----------------------------------------------------------------------------------------------

    def gradient_of(self, name: str) -> torch.Tensor:
        """Return the buffer of a parameter's gradient, zero at first."""
        shape = self._places[name].shape
        if self.gradient is None and len(shape) == 1:
            if name not in self._early:
                self._early[name] = torch.zeros(shape, dtype=self.precision.master, device=self.device)
            return self._early[name]
        part = self._places[name].of(self._gradients())
        if name in self._unwritten:
            self._unwritten.remove(name)
            part.zero_()
        return part

    def add_product(self, names: Sequence[str], g: torch.Tensor, x: torch.Tensor) -> None:
        """Add gᵀ·x to the gradients of adjacent matrices; the first product overwrites."""
        total = self._fused(self._gradients(), names)
        first = self._unwritten.issuperset(names)
        assert first or self._unwritten.isdisjoint(names), names
        self._unwritten.difference_update(names)
        if not self.precision.mixed:
            total.addmm_(g.t(), x, beta=0 if first else 1)
        elif first:
            total.copy_(g.t() @ x)
        else:
            total += g.t() @ x

    def reduce(self, items: Sequence[Collective]) -> Steps:
        """Reduce the gradients over tp, shards and replicas, as the Program lists it; keep this rank's shard."""
        gradient = self._gradients()
        for name in tuple(self._unwritten):
            self.gradient_of(name)
        self.gradient = None  # later passes add to a new buffer
        left = list(items)
        if left and left[0].axes == TP:
            start, stop = self.layout.summed_range(self.sequence_parallel)
            yield self.communicator.start(left.pop(0), gradient[start:stop], self.gradient_width)
        shard = gradient
        if self.layout.parts > 1:
            shard = torch.zeros(self.layout.shard, dtype=gradient.dtype, device=self.device)
            rows = shards_of_flat(self.layout, gradient)
            item = left.pop(0)
            assert item.axes == self.layout.mesh.shard, item
            yield self.communicator.start(
                item, rows, self.gradient_width, out=shard, elements=self.layout.size
            )
        if left:
            (item,) = left
            assert set(self.layout.mesh.replica) <= set(item.axes), item
            yield self.communicator.start(item, shard, self.gradient_width)
        self.reduced = shard if self.reduced is None or not self.accumulates else self.reduced.add_(shard)

    def tied(self) -> torch.Tensor:
        """Return the summed gradients of a table of two stages, padded to the largest part."""
        assert self.reduced is not None
        (start, stop), *_ = self.layout.pieces(self.part)
        if self.layout.parts == 1:
            return self.reduced[: self.layout.shared]
        padded = torch.zeros(
            -(-self.layout.shared // self.layout.parts), dtype=self.reduced.dtype, device=self.device
        )
        padded[: stop - start] = self.reduced[: stop - start]
        return padded

    def set_tied(self, summed: torch.Tensor) -> None:
        """Store the table's gradient, summed over both stages."""
        assert self.reduced is not None
        start, stop = (0, self.layout.shared) if self.layout.parts == 1 else self.layout.pieces(self.part)[0]
        self.reduced[: stop - start] = summed[: stop - start]

    def spans(self) -> Iterator[tuple[str, slice, slice]]:
        """Yield the parts of parameters in this shard: (name, slice of the flat parameter, slice of the shard)."""
        at = 0
        for start, stop in self.layout.pieces(self.part):
            for name, place in self._places.items():
                low, high = max(start, place.start), min(stop, place.stop)
                if low < high:
                    here = at + low - start
                    yield name, slice(low - place.start, high - place.start), slice(here, here + high - low)
            at += stop - start

    # -- buffers ------------------------------------------------------------------------------------------------

    def _gradients(self) -> torch.Tensor:
        if self.gradient is None:
            self.gradient = self._room
            if self.gradient is None:
                self.gradient = torch.empty(self.layout.size, dtype=self.precision.master, device=self.device)
            self._room = None if self.accumulates else self.gradient
            self._unwritten = set(self._places) - self._early.keys()
            for name, vector in self._early.items():
                self._places[name].of(self.gradient).copy_(vector)
            self._early.clear()
        return self.gradient

    def _fused(self, buffer: torch.Tensor | None, names: Sequence[str]) -> torch.Tensor:
        if buffer is None:
            raise RunError(
                f"{self.communicator.action}: {names[0]} is used while {self.name} is not gathered"
            )
        first, last = self._places[names[0]], self._places[names[-1]]
        return buffer[first.start : last.stop].view(-1, first.shape[-1])


def shard_of_flat(layout: UnitLayout, part: int, flat: torch.Tensor, shard: torch.Tensor) -> None:
    """Copy a rank's pieces of a flat buffer into its shard."""
    at = 0
    for start, stop in layout.pieces(part):
        shard[at : at + stop - start] = flat[start:stop]
        at += stop - start


def shards_of_flat(layout: UnitLayout, flat: torch.Tensor) -> torch.Tensor:
    """Return all ranks' shards concatenated, each padded; the flat buffer itself if that is the same."""
    if not layout.shared and layout.size == layout.parts * layout.shard:
        return flat
    rows = flat.new_zeros((layout.parts, layout.shard))
    for part, row in enumerate(rows):
        shard_of_flat(layout, part, flat, row)
    return rows.view(-1)


def flat_of_shards(layout: UnitLayout, rows: torch.Tensor) -> torch.Tensor:
    """Return the flat buffer of all ranks' shards; a view if only the end is padded."""
    if not layout.shared:
        return rows[: layout.size]
    flat = rows.new_empty(layout.size)
    for part, row in enumerate(rows.view(layout.parts, -1)):
        at = 0
        for start, stop in layout.pieces(part):
            flat[start:stop] = row[at : at + stop - start]
            at += stop - start
    return flat
