"""Ring exchange: each rank passes its tensor to the next one; the bytes are counted against the Program.

The Program gives the bytes that the ring holds together; each of n ranks sends (n − 1)/n of them. A round counts what
it sends and is logged only if the two agree.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from meshwright.program.local_shape import ACTIVATION_BYTES
from meshwright.program.pass_items import Collective
from meshwright.runtime.comm.communicator import Communicator, NamedWork, Traffic


@dataclass(frozen=True)
class RingTransfer:
    """A tensor in flight to another rank, and the tensor coming in."""

    works: tuple[NamedWork, ...]
    sent: torch.Tensor
    coming: torch.Tensor

    def wait(self) -> torch.Tensor:
        """Wait for the incoming tensor and return it."""
        for work in self.works:
            work.wait()
        return self.coming


@dataclass
class RingExchange:
    """One rank's end of a ring. ``moved`` is the bytes it has sent, at the Program's widths."""

    communicator: Communicator
    item: Collective
    ranks: tuple[int, ...]
    handle: dist.ProcessGroup | None
    moved: float = 0.0

    @property
    def place(self) -> int:
        """Index of this rank in the ring."""
        return self.ranks.index(self.communicator.rank)

    def pass_on(self, tensor: torch.Tensor, width: int = ACTIVATION_BYTES, distance: int = 1) -> RingTransfer:
        """Start a send to the rank ``distance`` places ahead and a receive from the rank as far behind."""
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
        return RingTransfer(
            tuple(NamedWork(work, self.communicator, what, self.ranks) for work in works), tensor, coming
        )

    def end(self) -> None:
        """Compare the bytes sent with the Program's, and log the exchange."""
        expected = float(self.item.logical_bytes) * (len(self.ranks) - 1) / len(self.ranks)
        assert self.moved == expected, (
            f"{self.communicator.current.text}: ring of {self.item.what} sent {self.moved} bytes, "
            f"the Program says {expected}"
        )
        item, communicator = self.item, self.communicator
        size = float(item.logical_bytes)
        communicator.log.append(
            Traffic(communicator.current.text, item.kind, item.axes, item.what, size, self.ranks)
        )


def begin_ring_exchange(communicator: Communicator, item: Collective) -> RingExchange:
    """Return this rank's end of the ring for a collective."""
    group = communicator.group(item.axes)
    return RingExchange(communicator, item, group.ranks, group.handle)


def ring_gather_and_sum(
    ring: RingExchange, held: torch.Tensor, contribute: Callable[[int, torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Send each rank's tensor round the ring once; return the sum of all ranks' contributions to this rank's tensor.

    ``contribute`` gets the ring index of the tensor's owner, and the tensor. Partial sums start at the rank after the
    owner, travel with the tensor and reach the owner after the last step, where its own contribution is added.
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
