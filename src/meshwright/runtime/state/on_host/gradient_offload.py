"""Copy gradients to the host as passes compute them, and sum them there.

A *lot* is what one block adds in one micro-batch to gradients whose states are on the host, in the type of the wire. It
leaves as soon as the block's weight gradients are there, while the next block computes its own, and is added to the
host's sums when the next lot leaves or the pass ends. So the device holds two lots, and none between passes; only
vectors, whose gradients I computes, wait for the W of their block.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod

import torch

from meshwright.program.pass_items import Collective
from meshwright.program.rank_units.unit_layout import Place, UnitLayout
from meshwright.runtime.comm.communicator import Communicator
from meshwright.runtime.comm.host_link import Copy, HostLink, StateCopy, Way
from meshwright.runtime.precision import Precision
from meshwright.runtime.state.gradient_buffers import Addition
from meshwright.runtime.state.on_host.shard_split import SplitShard

LotKey = tuple[int, int]
"""The stage's run and the place of the block that add to gradients."""


@dataclass
class GradientLots:
    """The lots of a rank. ``current`` is the block that computes, ``lots`` have not left.

    ``most_bytes`` is the most that the lots of this rank had on the device.
    """

    link: HostLink
    communicator: Communicator
    width: int
    current: LotKey = (0, 0)
    lots: dict[LotKey, list[tuple[torch.Tensor, torch.Tensor]]] = field(default_factory=dict)
    most_bytes: int = 0
    _going: Copy | None = None
    _sums: list[torch.Tensor] = field(default_factory=list)

    def add(self, values: torch.Tensor, total: torch.Tensor) -> None:
        """Add values, in the type of the wire, to the current block's lot; ``total`` is their sum on the host."""
        if len(values):
            self.lots.setdefault(self.current, []).append((values, total))
            self.most_bytes = max(self.most_bytes, self.device_bytes())

    def leave(self, key: LotKey) -> None:
        """Start to copy a block's lot to the host."""
        lot = self.lots.pop(key, [])
        if lot:
            self.send([values for values, _ in lot], [total for _, total in lot], self.width)

    def send(self, values: list[torch.Tensor], totals: list[torch.Tensor], width: int) -> None:
        """Start to copy values of ``width`` bytes to the host; those before are added to their sums."""
        self.end()
        size = width * sum(map(len, values))
        self.link.log.append(StateCopy(self.communicator.current.text, "out", "gradient", size))
        rooms = [torch.empty_like(one, device="cpu", pin_memory=self.link.accelerated) for one in values]
        self._going, self._sums = self.link.begin("out", values, rooms), totals
        self.most_bytes = max(self.most_bytes, self.device_bytes())

    def end(self) -> None:
        """Add what is on its way to its sums on the host."""
        if self._going is not None:
            for total, part in zip(self._sums, self._going.arrive(), strict=True):
                total += part.to(total)
        self._going, self._sums = None, []

    def device_bytes(self) -> int:
        """Return the bytes of all lots on the device."""
        waiting = sum(values.nbytes for lot in self.lots.values() for values, _ in lot)
        return waiting + (sum(one.nbytes for one in self._going.sources) if self._going else 0)


@dataclass
class OffloadedGradients:
    """Gradients of a unit that no other rank shares: the parts of states on the host leave, the others are summed here.

    It takes the place of a ``GradientBuffer``. ``sums`` are the gradients of both sides.
    """

    layout: UnitLayout
    precision: Precision
    lots: GradientLots
    sums: SplitShard
    additions: list[Addition] | None = None
    flat: torch.Tensor | None = None
    _places: dict[str, Place] = field(init=False)

    def __post_init__(self) -> None:
        self._places = self.layout.places

    @contextmanager
    def adding(self, name: str) -> Iterator[torch.Tensor]:
        """Lend a buffer to which a micro-batch adds its gradient of a parameter."""
        shape, device = self._places[name].shape, self.sums.device.device
        part = torch.zeros(shape, dtype=self.precision.statistic, device=device)
        yield part
        self._add((name,), part)

    def add_product(self, names: Sequence[str], g: torch.Tensor, x: torch.Tensor) -> None:
        """Add gᵀ·x to the gradients of adjacent matrices."""
        self._add(names, g.t() @ x)

    def take(self, items: Sequence[Collective]) -> None:
        """Note a reduction by ``items`` where a proof records it; the gradients stay where they are."""
        if self.additions is not None:
            self.additions.append(Addition("", None, tuple(items)))

    def _add(self, names: Sequence[str], part: torch.Tensor) -> None:
        sizes = [prod(self._places[name].shape) for name in names]
        for name, values in zip(names, part.detach().flatten().split(sizes), strict=True):
            if self.additions is not None:
                self.additions.append(Addition(name, values.clone()))
            at = self._places[name].start
            for segment in self.sums.split.within(at, at + len(values)):
                total = self.sums.side(segment.on_host)[segment.at :][: segment.stop - segment.start]
                here = values[segment.start - at : segment.stop - at]
                if segment.on_host:
                    self.lots.add(here.to(self.precision.reduce, copy=True), total)
                else:
                    total += here


@dataclass(frozen=True)
class ReturningSums:
    """Sums of gradients on both sides, of which a range returns to the device for a reduction, and leaves again."""

    sums: SplitShard
    lots: GradientLots
    precision: Precision

    def returned(self, start: int, stop: int) -> torch.Tensor:
        """Return a range of the sums on the device."""
        self._log("back", start, stop)
        return self.sums.read(start, stop).to(self.precision.gradient)

    def send_again(self, start: int, values: torch.Tensor) -> None:
        """Set a range of the sums."""
        self._log("out", start, start + len(values))
        self.sums.write(start, values)

    def _log(self, way: Way, start: int, stop: int) -> None:
        moved = sum(part.stop - part.start for part in self.sums.split.within(start, stop) if part.on_host)
        if moved:
            lots = self.lots
            copied = StateCopy(lots.communicator.current.text, way, "gradient", lots.width * moved)
            lots.link.log.append(copied)
