"""Offloaded parameters of a shard in the compute type, and the blocks of them fetched for passes.

After a step each side gives its parameters to their homes: what the host has stepped and the device keeps comes back,
what the device has stepped and the host keeps goes out. Of parameters whose home is the host, a pass fetches one block
while the block before computes, and drops it afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from meshwright.program.rank_units.unit_layout import Place
from meshwright.runtime.comm.communicator import Communicator
from meshwright.runtime.comm.host_link import Copy, HostLink, StateCopy, Way
from meshwright.runtime.precision import Precision
from meshwright.runtime.state.on_host.shard_split import Split, SplitShard

PARAMETER = "parameter"


@dataclass
class FetchedBlock:
    """The parameters of a block on the device; ``coming`` is the copy of the part from the host, until it has ended."""

    buffer: torch.Tensor
    places: dict[str, Place]
    coming: Copy | None


@dataclass
class ParameterHome:
    """The parameters of a shard between steps. ``blocks`` are fetched at once: places of parameters in the shard.

    ``here`` are the fetched blocks, ``width`` the bytes of a parameter that a copy counts. ``alone``: no other rank has
    a part of them.
    """

    split: Split
    precision: Precision
    link: HostLink
    communicator: Communicator
    width: int
    blocks: Sequence[dict[str, Place]]
    alone: bool
    values: SplitShard | None = None
    here: dict[int, FetchedBlock] = field(default_factory=dict)

    @property
    def fetched(self) -> bool:
        """True if some parameters are at home on the host."""
        return bool(self.split.host)

    @property
    def by_block(self) -> bool:
        """True if passes fetch blocks of parameters instead of gathering them."""
        return self.alone and self.fetched

    def take(self, master: SplitShard) -> None:
        """Set all parameters from the master copy."""
        if self.values is None:
            self.values = SplitShard.zeros(self.split, self.precision.compute, self.link)
        moved: dict[Way, list[tuple[torch.Tensor, torch.Tensor]]] = {"out": [], "back": []}
        for target in self.split.segments:
            room = self.values.side(target.on_host)[target.at :]
            for source in master.split.within(target.start, target.stop):
                given = master.side(source.on_host)[source.at :][: source.stop - source.start]
                rounded = given.to(self.precision.gather).to(self.precision.compute)
                own = room[source.start - target.start : source.stop - target.start]
                if source.on_host == target.on_host:
                    own.copy_(rounded)
                else:
                    moved["back" if source.on_host else "out"].append((rounded, own))
        for way, pairs in moved.items():
            if pairs:
                self._move(way, [rounded for rounded, _ in pairs], [own for _, own in pairs]).arrive()

    def fetch(self, block: int) -> None:
        """Start to bring the parameters of a block together on the device."""
        assert self.values is not None
        places = self.blocks[block]
        size = sum(place.stop - place.start for place in places.values())
        buffer = torch.empty(size, dtype=self.precision.compute, device=self.link.device)
        at, here, sources, targets = 0, dict[str, Place](), list[torch.Tensor](), list[torch.Tensor]()
        for name, place in places.items():
            here[name] = Place(at, at + place.stop - place.start, place.shape)
            for part in self.values.split.within(place.start, place.stop):
                own = self.values.side(part.on_host)[part.at :][: part.stop - part.start]
                room = buffer[at : at + len(own)]
                at += len(own)
                if part.on_host:
                    sources.append(own)
                    targets.append(room)
                else:
                    room.copy_(own)
        self.here[block] = FetchedBlock(buffer, here, self._move("back", sources, targets))

    def ready(self, block: int) -> FetchedBlock:
        """Return a block whose copy has ended; start it now if nothing has."""
        if block not in self.here:
            self.fetch(block)
        found = self.here[block]
        if found.coming is not None:
            found.coming.end()
            found.coming = None
        return found

    def drop(self, block: int) -> None:
        """Drop a fetched block."""
        self.here.pop(block, None)

    def _move(self, way: Way, sources: list[torch.Tensor], targets: list[torch.Tensor]) -> Copy:
        if sources:
            size = self.width * sum(map(len, sources))
            self.link.log.append(StateCopy(self.communicator.current.text, way, PARAMETER, size))
        return self.link.begin(way, sources, targets)
