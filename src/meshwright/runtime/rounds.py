"""A ring of the Program at work: each rank passes on what it got, and what went round is counted.

The Program says how many bytes the ring holds together; of n ranks each sends (n − 1)/n of them. A round counts what it
really sends and is only logged when that agrees.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from meshwright.program.items import Collective
from meshwright.program.shape import ACTIVATION_BYTES
from meshwright.runtime.communicator import Communicator, NamedWork, Traffic


@dataclass(frozen=True)
class Passing:
    """A tensor on its way to another rank, and one that comes from elsewhere."""

    works: tuple[NamedWork, ...]
    sent: torch.Tensor
    coming: torch.Tensor

    def wait(self) -> torch.Tensor:
        """What has come."""
        for work in self.works:
            work.wait()
        return self.coming


@dataclass
class Round:
    """One rank in a ring. ``moved`` are the bytes that it has sent, at the Program's widths."""

    communicator: Communicator
    item: Collective
    ranks: tuple[int, ...]
    handle: dist.ProcessGroup | None
    moved: float = 0.0

    @property
    def place(self) -> int:
        """This rank's place."""
        return self.ranks.index(self.communicator.rank)

    def pass_on(self, tensor: torch.Tensor, width: int = ACTIVATION_BYTES, distance: int = 1) -> Passing:
        """Begin to send to the rank ``distance`` places ahead, and to receive what comes from as far behind."""
        assert tensor.is_contiguous()
        count, what = len(self.ranks), f"ring of {self.item.what}"
        target = self.ranks[(self.place + distance) % count]
        source = self.ranks[(self.place - distance) % count]
        coming = torch.empty_like(tensor)
        operations = [
            dist.P2POp(dist.isend, tensor, target, self.handle),
            dist.P2POp(dist.irecv, coming, source, self.handle),
        ]
        with self.communicator.naming(what, self.ranks):
            works = dist.batch_isend_irecv(operations)
        self.moved += tensor.numel() * width
        return Passing(
            tuple(NamedWork(work, self.communicator, what, self.ranks) for work in works), tensor, coming
        )

    def end(self) -> None:
        """Hold what was sent against the Program, and log it."""
        expected = float(self.item.logical_bytes) * (len(self.ranks) - 1) / len(self.ranks)
        assert self.moved == expected, (
            f"{self.communicator.action}: ring of {self.item.what} sent {self.moved} bytes, "
            f"the Program says {expected}"
        )
        item, communicator = self.item, self.communicator
        size = float(item.logical_bytes)
        communicator.log.append(
            Traffic(communicator.action, item.kind, item.axes, item.what, size, self.ranks)
        )


def begin_round(communicator: Communicator, item: Collective) -> Round:
    """A rank's part of a ring."""
    group = communicator.group(item.axes)
    return Round(communicator, item, group.ranks, group.handle)


def round_trip(
    ring: Round, held: torch.Tensor, contribute: Callable[[int, torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Send what a rank has round once, and gather what all ranks contribute to it: (of this rank's) their sum.

    ``contribute`` gets the place whose tensor is here, and that tensor. Contributions begin at the next rank, follow
    the tensor and are home after the last step, where the rank's own is added.
    """
    steps, own, coming = len(ring.ranks), torch.empty_like(held), None
    for step in range(steps):
        passing = ring.pass_on(held) if step + 1 < steps else None
        part = contribute(ring.place - step, held)
        if step == 0:
            own = part
        else:
            coming = ring.pass_on(part if coming is None else part.add_(coming.wait()))
        held = passing.wait() if passing else held
    return own if coming is None else own.add_(coming.wait())
