"""Gather, free and reduce the parameters of one unit by explicit calls.

=========  ======================================================================================================
buffer     what it is
=========  ======================================================================================================
owned      this rank's shard of the parameters, in the dtype of the master copy; authoritative between steps
whole      all parameters of the unit in the compute dtype: gathered, or always present if not sharded
           (the same memory as ``owned`` if the dtypes agree)
gradient   gradients of all parameters of the unit, from the first weight gradient to the reduction; those of vectors
           (norms, biases), which I computes before any W has run, wait in buffers of their own. Where they are narrow,
           a micro-batch's gradient is computed in a wide dtype and rounded when it is added
reduced    this rank's shard of the summed gradients, which the optimizer reads
=========  ======================================================================================================

Nothing else ever holds these buffers: operators ask a unit for a view each time they use a parameter, in the forward
pass and again in the backward pass. So dropping the reference frees the memory, and using a parameter that is not
gathered is an error with its name.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import torch

from meshwright.errors import RunError
from meshwright.program.pass_items import Collective
from meshwright.runtime.comm.communicator import Communicator, Work
from meshwright.runtime.comm.narrow_sums import sum_over_ranks
from meshwright.runtime.precision import Precision
from meshwright.runtime.state.unit_layout import UnitLayout

TP = ("tp",)
Steps = Generator[Work, None, None]
"""An exchange of several operations in sequence: each is yielded after it has started."""


class Addition(NamedTuple):
    """A micro-batch's gradient of a parameter, flat, before it is rounded; without a name: a reduction by ``items``."""

    name: str
    values: torch.Tensor | None
    items: tuple[Collective, ...] = ()


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
    parameter_width: int
    owned: torch.Tensor = field(init=False)
    whole: torch.Tensor | None = None
    gradient: torch.Tensor | None = None
    reduced: torch.Tensor | None = None
    additions: "list[Addition] | None" = None
    """What was added to gradients, in order, where a proof records it."""

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
        own = self.owned.to(self.precision.gather)
        if not items:
            self.whole = own[: self.layout.size].to(self.precision.compute)
            return
        if self._rows is None:
            self._rows = torch.empty(self.layout.parts * len(own), dtype=own.dtype, device=self.device)
        yield self.communicator.start(
            items[0], own, self.parameter_width, out=self._rows, elements=self.layout.size
        )
        self.whole = flat_of_shards(self.layout, self._rows).to(self.precision.compute)
        if self.layout.shared or own.dtype != self.whole.dtype:  # a copy has been made
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

    @contextmanager
    def adding(self, name: str) -> Iterator[torch.Tensor]:
        """Lend a buffer to which a micro-batch adds its gradient of a parameter; a narrow sum is rounded once."""
        if self.additions is None and self.precision.gradient == self.precision.statistic:
            yield self._gradient_of(name)
            return
        part = torch.zeros(self.shape(name), dtype=self.precision.statistic, device=self.device)
        yield part
        self._add((name,), part)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the local shape of a parameter."""
        return self._places[name].shape

    def _add(self, names: Sequence[str], part: torch.Tensor) -> None:
        """Add to the gradients of adjacent parameters, and record it where asked to."""
        total = self._gradient_of(names[0]) if len(names) == 1 else self._product_of(names)[0]
        total += part.view_as(total)
        if self.additions is not None:
            sizes = [prod(self.shape(name)) for name in names]
            parts = part.detach().flatten().clone().split(sizes)
            self.additions += map(Addition, names, parts)

    def _gradient_of(self, name: str) -> torch.Tensor:
        """Return the buffer of a parameter's gradient, zero at first."""
        shape = self._places[name].shape
        if self.gradient is None and len(shape) == 1:
            if name not in self._early:
                self._early[name] = torch.zeros(shape, dtype=self.precision.gradient, device=self.device)
            return self._early[name]
        part = self._places[name].of(self._gradients())
        if name in self._unwritten:
            self._unwritten.remove(name)
            part.zero_()
        return part

    def add_product(self, names: Sequence[str], g: torch.Tensor, x: torch.Tensor) -> None:
        """Add gᵀ·x to the gradients of adjacent matrices; the first product overwrites."""
        if self.additions is not None:
            for name in self._unwritten.intersection(names):
                self._gradient_of(name)
            self._add(names, g.t() @ x)
            return
        total, first = self._product_of(names)
        if not self.precision.mixed:
            total.addmm_(g.t(), x, beta=0 if first else 1)
        elif first:
            total.copy_(g.t() @ x)
        else:
            total += g.t() @ x

    def _product_of(self, names: Sequence[str]) -> tuple[torch.Tensor, bool]:
        """Return the buffer of adjacent matrices' gradients, and whether nothing was written to it."""
        total = self._fused(self._gradients(), names)
        first = self._unwritten.issuperset(names)
        assert first or self._unwritten.isdisjoint(names), names
        self._unwritten.difference_update(names)
        return total, first

    def reduce(self, items: Sequence[Collective]) -> Steps:
        """Reduce the gradients over tp, shards and replicas, as the Program lists it; keep this rank's shard."""
        gradient = self._gradients()
        for name in tuple(self._unwritten):
            self._gradient_of(name)
        if self.additions is not None:
            self.additions.append(Addition("", None, tuple(items)))
        self.gradient = None  # later passes add to a new buffer
        left = list(items)
        if left and left[0].axes == TP:
            start, stop = self.layout.summed_range(self.sequence_parallel)
            yield from self.sum_over_ranks(left.pop(0), gradient[start:stop])
        shard = gradient
        if self.layout.parts > 1:
            shard = torch.zeros(self.layout.shard, dtype=gradient.dtype, device=self.device)
            rows = shards_of_flat(self.layout, gradient)
            item = left.pop(0)
            assert item.axes == self.layout.mesh.shard, item
            yield from self.sum_over_ranks(item, rows, shard)
        if left:
            (item,) = left
            assert set(self.layout.mesh.replica) <= set(item.axes), item
            yield from self.sum_over_ranks(item, shard)
        self.reduced = shard if self.reduced is None or not self.accumulates else self.reduced.add_(shard)

    def sum_over_ranks(
        self, item: Collective, gradient: torch.Tensor, shard: torch.Tensor | None = None
    ) -> Steps:
        """Sum gradients over ranks: in place, or what all ranks have of this rank's ``shard``."""
        elements = None if shard is None else self.layout.size
        return sum_over_ranks(
            self.communicator, item, gradient, self.precision, self.gradient_width, shard, elements
        )

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
                self.gradient = torch.empty(
                    self.layout.size, dtype=self.precision.gradient, device=self.device
                )
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
