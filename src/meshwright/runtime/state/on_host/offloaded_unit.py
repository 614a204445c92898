"""A unit of parameters with states in host memory.

Master copy, moments and sums of gradients of a part of the shard are on the host, and of another part the parameters
themselves (``shard_split.py`` says which parts). Gradients leave with each micro-batch (``gradient_offload.py``) or,
where they are final only then, before the step. Each side steps its own part; then parameters go where their home is
(``parameter_offload.py``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from meshwright.errors import RunError
from meshwright.program.pass_items import Collective
from meshwright.program.rank_units.unit_layout import Place, UnitLayout, adjacent
from meshwright.runtime.comm.host_link import HostLink
from meshwright.runtime.state.gradient_buffers import GradientBuffer
from meshwright.runtime.state.on_host.gradient_offload import GradientLots, OffloadedGradients, ReturningSums
from meshwright.runtime.state.on_host.parameter_offload import ParameterHome
from meshwright.runtime.state.on_host.shard_split import ShareCut, Split, SplitShard, part_of
from meshwright.runtime.state.sharded_unit import Steps, Unit, padded_table, shared_elements


@dataclass(frozen=True, kw_only=True)
class Hosting:
    """Division of a rank's units between device and host.

    ``leaves``: gradients leave with each micro-batch, ``in_passes``: after reductions in passes. ``keeps_shard``: a
    rank keeps its shard of the parameters besides gathered ones (zero3). ``width`` are the bytes of a parameter,
    ``gradient_width`` those of a gradient that waits for the step.
    """

    lots: GradientLots
    states: ShareCut
    parameters: ShareCut
    leaves: bool
    in_passes: bool
    keeps_shard: bool
    width: int
    gradient_width: int

    @property
    def link(self) -> HostLink:
        """The connection to the host."""
        return self.lots.link


@dataclass
class OffloadedUnit(Unit):
    """A unit whose shard is divided between device and host. ``blocks`` are the names of each block's parameters.

    ``master`` is the master copy, ``sums`` are the gradients of both sides, or only the host's until the step.
    """

    hosting: Hosting = field(kw_only=True)
    blocks: Sequence[Sequence[str]] = field(kw_only=True)
    master: SplitShard = field(init=False)
    sums: SplitShard = field(init=False)
    home: ParameterHome = field(init=False)
    final: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        pieces = [(here.start, here.stop) for _, _, here in self.spans()]
        filled = pieces[-1][1] if pieces else 0
        pieces.append((filled, self.layout.shard))
        hosting, link = self.hosting, self.hosting.link
        split = hosting.states.split(pieces)
        self.master = SplitShard.zeros(split, self.precision.master, link)
        kept = split.elements(False) if hosting.leaves else 0
        sums = torch.zeros(kept, dtype=self.precision.gradient, device=self.device)
        wide = torch.promote_types(self.precision.gradient, torch.float32)
        host = link.host_zeros(split.elements(True), wide)
        self.sums = SplitShard(split, sums, host)
        whole = {"": Place(0, self.layout.shard, (self.layout.shard,))}
        one = [{name: self._places[name] for name in names} for names in self.blocks]
        self.home = ParameterHome(
            hosting.parameters.split(pieces),
            self.precision,
            link,
            self.communicator,
            hosting.width,
            one if self.layout.parts == 1 else [whole],
            alone=self.layout.parts == 1,
        )
        self.sums_again = ReturningSums(self.sums, hosting.lots, self.precision)
        if hosting.leaves and not hosting.in_passes:
            self.gradients = OffloadedGradients(self.layout, self.precision, hosting.lots, self.sums)  # type: ignore[assignment]
        else:
            reuses = not self.accumulates
            self.gradients = GradientBuffer(self.layout, self.precision, self.device, reuses_memory=reuses)

    # -- parameters ---------------------------------------------------------------------------------------------

    @property
    def owned(self) -> torch.Tensor:
        """A copy of the shard of the parameters, in the dtype of the master copy."""
        return self.master.whole

    @owned.setter
    def owned(self, shard: torch.Tensor) -> None:
        if "master" in self.__dict__:
            self.master.write(0, shard)

    def settle(self) -> None:
        """Give the parameters to their homes, at the start and after a step."""
        self.home.here.clear()
        self.home.take(self.master)

    def gather(self, items: Sequence[Collective]) -> Steps:
        """Gather all parameters from the shards; those of this rank alone are fetched instead, block by block."""
        if not self.home.by_block:
            yield from super().gather(items)
            self.home.drop(0)
            if self.layout.parts > 1 and not self.hosting.keeps_shard:
                self.home.values = None

    def _shard_to_gather(self) -> torch.Tensor:
        if self.home.fetched:
            return self.home.ready(0).buffer
        assert self.home.values is not None, "parameters have not come back"
        return self.home.values.device

    def view(self, name: str) -> torch.Tensor:
        """Return a parameter of this rank. Raises RunError if it is neither gathered nor fetched."""
        return self.rows([name]).view(self.shape(name)) if self.home.by_block else super().view(name)

    def rows(self, names: Sequence[str]) -> torch.Tensor:
        """Return adjacent matrices as one: (sum of outputs, inputs)."""
        if not self.home.by_block:
            return super().rows(names)
        for block in self.home.here.values():
            if names[0] in block.places:
                return adjacent(block.buffer, [block.places[name] for name in names])
        raise RunError(f"{self.communicator.current.text}: {names[0]} is used while its block is on the host")

    # -- gradients ----------------------------------------------------------------------------------------------

    @property
    def reduced(self) -> torch.Tensor | None:
        """The shard of the summed gradients: a copy where they have left."""
        if not self.hosting.leaves:
            return self.__dict__.get("_final")
        return self.sums.whole if self.final else None

    @reduced.setter
    def reduced(self, value: torch.Tensor | None) -> None:
        self.__dict__["_final"] = value
        self.final = value is not None
        if value is None and "sums" in self.__dict__:
            self.sums.device.zero_()
            self.sums.host.zero_()

    def reduce(self, items: Sequence[Collective]) -> Steps:
        """Reduce the gradients; where they have left, partial sums over tp return for it."""
        if not isinstance(self.gradients, OffloadedGradients):
            yield from super().reduce(items)
            return
        self.gradients.take(items)
        self.hosting.lots.end()
        self.inspect(self, (self.sums.device, self.sums.host))
        for item in items:
            start, stop = self.layout.summed_range(self.sequence_parallel)
            partial = self.sums_again.returned(start, stop)
            yield from self.sum_over_ranks(item, partial)
            self.sums_again.send_again(start, partial)
        self.final = True

    def _keep(self, shard: torch.Tensor) -> None:
        if not self.hosting.leaves:
            super()._keep(shard)
            return
        split, self.final = self.sums.split, True
        if split.device:
            self.sums.device.add_(part_of(shard, split.device))
        if split.host:
            leaving = part_of(shard, split.host).to(self.precision.reduce, copy=bool(split.device))
            self.hosting.lots.send([leaving], [self.sums.host], self.gradient_width)

    def tied(self) -> torch.Tensor:
        """Return the summed gradients of a table of two stages, padded to the largest part."""
        if not self.hosting.leaves:
            return super().tied()
        return padded_table(self.layout, self.sums_again.returned(0, shared_elements(self.layout, self.part)))

    def set_tied(self, summed: torch.Tensor) -> None:
        """Store the table's gradient, summed over both stages."""
        if self.hosting.leaves:
            self.sums_again.send_again(0, summed[: shared_elements(self.layout, self.part)])
        else:
            super().set_tied(summed)

    def before_step(self) -> None:
        """Send the host its part of gradients that have waited on the device for the step."""
        reduced, split = self.reduced, self.sums.split
        if not self.hosting.leaves and reduced is not None and split.host:
            waited = [part_of(reduced, split.host)]
            self.hosting.lots.send(waited, [self.sums.host], self.hosting.gradient_width)
            self.hosting.lots.end()


@dataclass(frozen=True, eq=False)
class ShardPart:
    """The device's or the host's part of a unit's shard, as the optimizer steps it."""

    unit: OffloadedUnit
    on_host: bool

    @property
    def name(self) -> str:
        """The unit's name, and the side."""
        return f"{self.unit.name}, {'host' if self.on_host else 'device'}"

    @property
    def layout(self) -> UnitLayout:
        """The unit's layout."""
        return self.unit.layout

    @property
    def split(self) -> Split:
        """The split of the unit's shard."""
        return self.unit.master.split

    @property
    def device(self) -> torch.device:
        """The device of the part's memory."""
        return self.owned.device

    @property
    def owned(self) -> torch.Tensor:
        """The master copy."""
        return self.unit.master.side(self.on_host)

    @property
    def reduced(self) -> torch.Tensor | None:
        """The summed gradients."""
        if self.on_host or self.unit.hosting.leaves:
            return self.unit.sums.side(self.on_host)
        reduced = self.unit.reduced
        return None if reduced is None else part_of(reduced, self.split.device)

    def places(self, here: slice) -> list[slice]:
        """Return where this memory holds a range of the shard."""
        return [slice(*at) for at in self.split.compact(here.start, here.stop, self.on_host)]

    def spans(self) -> Iterator[tuple[str, slice, slice]]:
        """Yield the parts of parameters in this memory: (name, slice of the flat parameter, slice of the memory)."""
        for name, of, here in self.unit.spans():
            for part in self.split.within(here.start, here.stop):
                if part.on_host == self.on_host:
                    start, length = of.start + part.start - here.start, part.stop - part.start
                    yield name, slice(start, start + length), slice(part.at, part.at + length)


def sides_of(unit: OffloadedUnit) -> tuple[ShardPart, ...]:
    """Return the parts of a shard that are stepped; the host's, which has the first elements of a span, comes first."""
    return tuple(ShardPart(unit, side) for side in (True, False) if unit.master.split.side(side))


def parameters_at(unit: Unit, here: slice) -> tuple[torch.Tensor, ...]:
    """Return the master copy of a range of a unit's shard as parts of its own memory."""
    if isinstance(unit, OffloadedUnit):
        return tuple(unit.master.memory(here.start, here.stop))
    return (unit.owned[here],)
