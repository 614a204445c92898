"""Gather, free and reduce the parameters of one unit by explicit calls.

=========  ======================================================================================================
buffer     what it is
=========  ======================================================================================================
owned      this rank's shard of the parameters, in the dtype of the master copy; authoritative between steps
whole      all parameters of the unit in the compute dtype: gathered, or always present if not sharded
           (if it is present and the dtypes agree, ``owned`` is a part of its memory)
gradients  gradients of all parameters of the unit, from the first weight gradient to the reduction
           (``gradient_buffers.py``)
reduced    this rank's shard of the summed gradients, which the optimizer reads
=========  ======================================================================================================

Nothing else ever holds these buffers: operators ask a unit for a view each time they use a parameter, in the forward
pass and again in the backward pass. So dropping the reference frees the memory, and using a parameter that is not
gathered is an error with its name.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from meshwright.errors import RunError
from meshwright.program.pass_items import Collective
from meshwright.program.program import TABLE_PIECES
from meshwright.program.rank_units.unit_layout import UnitLayout, adjacent
from meshwright.runtime.comm.communicator import Communicator, Work
from meshwright.runtime.comm.reduction_precision import sum_over_ranks
from meshwright.runtime.precision import Precision
from meshwright.runtime.state.gradient_buffers import GradientBuffer
from meshwright.runtime.state.table_exchange import add_other_gradient
from meshwright.runtime.state.uneven_exchanges import gather_shards, reduce_to_shards
from meshwright.runtime.synchronisation.unit_codecs import UnitCodecs

TP = ("tp",)
Steps = Generator[Work, None, None]
"""An exchange of several operations in sequence: each is yielded after it has started."""


def _no_inspection(unit: "Unit", parts: Sequence[torch.Tensor]) -> None:
    """Let gradients leave as they are."""


@dataclass
class Unit:
    """The parameters of a block or stage on one rank. ``name`` is for messages.

    With ``stays_whole`` gathered parameters are never freed, as under zero1 and zero2. ``inspect`` is called with this
    rank's own gradients before they are summed with those of others.
    """

    name: str
    layout: UnitLayout
    communicator: Communicator
    precision: Precision
    sequence_parallel: bool
    accumulates: bool
    gradient_width: int
    parameter_width: int
    stays_whole: bool = False
    codecs: UnitCodecs | None = None
    gradients: GradientBuffer = field(init=False)
    whole: torch.Tensor | None = None
    inspect: Callable[["Unit", Sequence[torch.Tensor]], None] = _no_inspection

    def __post_init__(self) -> None:
        self.part = self.communicator.place_in(self.layout.mesh.shard) if self.layout.parts > 1 else 0
        self._places = self.layout.places
        self._rows: torch.Tensor | None = None  # the memory of ``whole`` until it is freed
        self.owned: torch.Tensor = torch.zeros(
            self.layout.held(self.part), dtype=self.precision.master, device=self.device
        )
        self.reduced: torch.Tensor | None = None
        self.gradients = GradientBuffer(
            self.layout, self.precision, self.device, reuses_memory=not self.accumulates
        )

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
        owned = torch.zeros(self.layout.held(self.part), dtype=flat.dtype, device=self.device)
        shard_of_flat(self.layout, self.part, flat, owned)
        self.owned = owned

    def gather(self, items: Sequence[Collective]) -> Steps:
        """Gather all parameters from the shards."""
        own = self._shard_to_gather().to(self.precision.gather)
        if not items:
            self.whole = own[: self.layout.size].to(self.precision.compute)
            return
        if items[0].entry is not None:
            assert self.codecs is not None
            flat = yield from self.codecs.gather(items[0], self.owned)
            self.whole = flat.to(self.precision.compute)
            return
        if self._rows is None:
            size = self.layout.size if self.layout.weights else self.layout.parts * len(own)
            self._rows = torch.empty(size, dtype=own.dtype, device=self.device)
        yield from gather_shards(
            self.communicator, items[0], self.layout, own, self._rows, self.parameter_width
        )
        self.whole = flat_of_shards(self.layout, self._rows).to(self.precision.compute)
        if not self.layout.contiguous or own.dtype != self.whole.dtype:  # a copy has been made
            self._rows = None
        elif self.stays_whole and own.dtype == self.owned.dtype:
            self.owned = self._rows[self.layout.row(self.part)]

    def _shard_to_gather(self) -> torch.Tensor:
        return self.owned

    def free(self) -> None:
        """Drop the gathered parameters; unsharded ones stay."""
        if self.layout.parts > 1:
            self.whole = self._rows = None

    def view(self, name: str) -> torch.Tensor:
        """Return a parameter of this rank. Raises RunError if it is not gathered."""
        if self.whole is None:
            raise RunError(
                f"{self.communicator.current.text}: {name} is used while {self.name} is not gathered"
            )
        return self._places[name].of(self.whole)

    def rows(self, names: Sequence[str]) -> torch.Tensor:
        """Return adjacent matrices as one: (sum of outputs, inputs)."""
        self.view(names[0])
        assert self.whole is not None
        return adjacent(self.whole, [self._places[name] for name in names])

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the local shape of a parameter."""
        return self._places[name].shape

    # -- gradients ----------------------------------------------------------------------------------------------

    def reduce(self, items: Sequence[Collective]) -> Steps:
        """Reduce the gradients over tp, shards and replicas, as the Program lists it; keep this rank's shard."""
        items = items if self.codecs is None else self.codecs.own_legs(items)
        gradient, left = self.gradients.take(items), list(items)
        self.inspect(self, (gradient,))
        if left and left[0].axes == TP:
            start, stop = self.layout.summed_range(self.sequence_parallel)
            yield from self.sum_over_ranks(left.pop(0), gradient[start:stop])
        shard = gradient
        if self.layout.parts > 1:
            shard = torch.zeros(self.layout.held(self.part), dtype=gradient.dtype, device=self.device)
            item = left.pop(0)
            assert item.axes == self.layout.mesh.shard, item
            if item.entry is not None:
                assert self.codecs is not None
                yield from self.codecs.scatter(item, gradient, shard)
            elif self.layout.weights:
                yield from reduce_to_shards(
                    self.communicator, item, self.layout, gradient, self.gradient_width
                )
                shard_of_flat(self.layout, self.part, gradient, shard)
            else:
                yield from self.sum_over_ranks(item, shards_of_flat(self.layout, gradient), shard)
        while left:
            item = left.pop(0)
            if item.entry is None:
                yield from self.sum_over_ranks(item, shard)
                continue
            legs = [item]
            while left and (left[0].entry, left[0].axes) == (item.entry, item.axes):
                legs.append(left.pop(0))
            assert self.codecs is not None
            yield from self.codecs.sum(legs, shard)
        self._keep(shard)

    def _keep(self, shard: torch.Tensor) -> None:
        self.reduced = shard if self.reduced is None or not self.accumulates else self.reduced.add_(shard)

    def sum_over_ranks(
        self, item: Collective, gradient: torch.Tensor, shard: torch.Tensor | None = None
    ) -> Steps:
        """Sum gradients over ranks: in place, or what all ranks have of this rank's ``shard``."""
        if item.axes == TABLE_PIECES:
            return add_other_gradient(self.communicator, gradient)
        elements = None if shard is None else self.layout.size
        return sum_over_ranks(
            self.communicator, item, gradient, self.precision, self.gradient_width, shard, elements
        )

    def tied(self) -> torch.Tensor:
        """Return the summed gradients of a table of two stages, padded to the largest part."""
        assert self.reduced is not None
        return padded_table(self.layout, self.reduced[: shared_elements(self.layout, self.part)])

    def set_tied(self, summed: torch.Tensor) -> None:
        """Store the table's gradient, summed over both stages."""
        assert self.reduced is not None
        elements = shared_elements(self.layout, self.part)
        self.reduced[:elements] = summed[:elements]

    def spans(self) -> Iterator[tuple[str, slice, slice]]:
        """Yield the parts of parameters in this shard: (name, slice of the flat parameter, slice of the shard)."""
        return self.layout.spans(self.part)


def shared_elements(layout: UnitLayout, part: int) -> int:
    """Return how many elements of a table of two stages a rank owns; they begin its shard."""
    (start, stop), *_ = layout.pieces(part)
    return layout.shared if layout.parts == 1 else stop - start


def padded_table(layout: UnitLayout, own: torch.Tensor) -> torch.Tensor:
    """Return a rank's part of such a table, padded to the largest part."""
    if layout.parts == 1:
        return own
    padded = own.new_zeros(-(-layout.shared // layout.parts))
    padded[: len(own)] = own
    return padded


def shard_of_flat(layout: UnitLayout, part: int, flat: torch.Tensor, shard: torch.Tensor) -> None:
    """Copy a rank's pieces of a flat buffer into its shard."""
    at = 0
    for start, stop in layout.pieces(part):
        shard[at : at + stop - start] = flat[start:stop]
        at += stop - start


def shards_of_flat(layout: UnitLayout, flat: torch.Tensor) -> torch.Tensor:
    """Return all ranks' shards concatenated, each padded; the flat buffer itself if that is the same."""
    if layout.contiguous and layout.size == layout.parts * layout.shard:
        return flat
    rows = flat.new_zeros((layout.parts, layout.shard))
    for part, row in enumerate(rows):
        shard_of_flat(layout, part, flat, row)
    return rows.view(-1)


def flat_of_shards(layout: UnitLayout, rows: torch.Tensor) -> torch.Tensor:
    """Return the flat buffer of all ranks' shards; a view if only the end is padded."""
    if layout.contiguous:
        return rows[: layout.size]
    flat = rows.new_empty(layout.size)
    for part, row in enumerate(rows.view(layout.parts, -1)):
        at = 0
        for start, stop in layout.pieces(part):
            flat[start:stop] = row[at : at + stop - start]
            at += stop - start
    return flat
