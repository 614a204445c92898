"""Run the legs of an exchange over a rank's process group, checked against the Program's collectives."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from meshwright.program.pass_items import Collective
from meshwright.runtime.comm.communicator import Communicator
from meshwright.runtime.synchronisation.leg import COLLECTIVES, Leg


@dataclass
class GroupTransport:
    """One rank's way to the members of a group, for one exchange of ``collectives``."""

    communicator: Communicator
    collectives: Sequence[Collective]
    left: Iterator[Collective] = field(init=False)

    def __post_init__(self) -> None:
        self.left = iter(self.collectives)

    def start(self, leg: Leg) -> Callable[[], torch.Tensor]:
        """Start a leg; its bytes must be those of the Program."""
        item = next(self.left)
        assert (item.kind, item.logical_bytes) == (leg.kind, leg.logical_bytes), (item, leg)
        if leg.kind == "all-gather":
            return self._gather(item, leg)
        out = leg.tensor if leg.kind == "all-reduce" else leg.tensor.new_empty(sum(leg.received))
        splits = (list(leg.sent), list(leg.received)) if leg.kind == "all-to-all" else None
        given = None if leg.kind == "all-reduce" else out
        work = self.communicator.start(item, leg.tensor, 1, out=given, splits=splits, encoded=True)

        def wait() -> torch.Tensor:
            work.wait()
            return out

        return wait

    def _gather(self, item: Collective, leg: Leg) -> Callable[[], torch.Tensor]:
        """Gather parts that may be unequal: each is padded to the longest."""
        longest = max(leg.received)
        part = leg.tensor.new_zeros(longest)
        part[: len(leg.tensor)] = leg.tensor
        out = leg.tensor.new_empty(longest * len(leg.received))
        work = self.communicator.start(item, part, 1, out=out, encoded=True)

        def wait() -> torch.Tensor:
            work.wait()
            return torch.cat([row[:n] for row, n in zip(out.view(-1, longest), leg.received, strict=True)])

        return wait


@dataclass
class LegWork:
    """A leg that has started, as an operation in progress."""

    finish: Callable[[], torch.Tensor]
    received: torch.Tensor | None = None

    def wait(self) -> None:
        """Return when the leg has ended."""
        if self.received is None:
            self.received = self.finish()

    def is_completed(self) -> bool:
        """Return whether the leg has ended."""
        return self.received is not None

    def result(self) -> torch.Tensor:
        """Wait for the leg and return its result."""
        self.wait()
        assert self.received is not None
        return self.received


class AloneTransport:
    """The way of a rank whose group has no other member."""

    def start(self, leg: Leg) -> Callable[[], torch.Tensor]:
        """Return the leg's own values."""
        (own,) = COLLECTIVES[leg.kind]([leg])
        return lambda: own
