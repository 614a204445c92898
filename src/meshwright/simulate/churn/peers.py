"""The peers of a pipeline's stages, their work, and how loaded each stage is.

A peer is a set of ranks that holds one whole copy of a stage: those of one pipeline rank and one replica. It leaves and
joins as a whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Peer:
    """A peer of a stage. ``speed`` is 1 for the plan's device; ``lives`` counts how often it has left."""

    index: int
    stage: int
    speed: float = 1.0
    up: bool = True
    lives: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The passes and messages of a micro-batch, in seconds, at peers of speed 1.

    By stage: ``forward_s``, ``backward_s``, ``forward_message_s`` to the next stage of a path and
    ``backward_message_s`` to the one before; ``links`` replaces both by the seconds between two peers.
    ``occupancy`` is the part of a message for which it keeps its sender. ``in_flight`` is the most micro-batches whose
    activations a peer of each stage holds; ``orders`` are the kinds of a peer's passes in the order of the plan's
    schedule, as "FFBB". ``tail_s`` is the rest of a step: exchanges of gradients, norm and optimizer. ``hosts``, if
    it is given, has the stage whose peers run each stage: the loss may be a stage at the peers of the first one.
    """

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    forward_message_s: tuple[float, ...] = ()
    backward_message_s: tuple[float, ...] = ()
    links: Sequence[Sequence[float]] | None = None
    occupancy: float = 0.0
    in_flight: tuple[int, ...]
    orders: tuple[str, ...] = ()
    tail_s: float = 0.0
    hosts: tuple[int, ...] = ()

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.forward_s)

    def host(self, stage: int) -> int:
        """Return the stage whose peers run a stage."""
        return self.hosts[stage] if self.hosts else stage

    def stage_s(self, stage: int) -> float:
        """Seconds of both passes of a micro-batch at a stage."""
        return self.forward_s[stage] + self.backward_s[stage]

    def message_s(self, kind: str, stage: int, sender: int, receiver: int) -> float:
        """Seconds of a message after a pass of ``kind`` at a stage, from one peer to another."""
        if self.links is not None:
            return self.links[sender][receiver]
        return (self.forward_message_s if kind == "F" else self.backward_message_s)[stage]


@dataclass(slots=True)
class StageLoads:
    """Integrals over time by stage: of passes that run, and of peers that are there."""

    busy: list[float]
    present: list[float]

    @classmethod
    def zero(cls, stages: int) -> "StageLoads":
        """Return loads over no time."""
        return cls([0.0] * stages, [0.0] * stages)

    def add(self, other: "StageLoads") -> None:
        """Add the loads of a later time."""
        for stage, (busy, present) in enumerate(zip(other.busy, other.present, strict=True)):
            self.busy[stage] += busy
            self.present[stage] += present

    def shares(self) -> list[float]:
        """Return the load of each stage: the part of its peers' time that passes take."""
        both = zip(self.busy, self.present, strict=True)
        return [busy / present if present else 0.0 for busy, present in both]

    @property
    def ratio(self) -> float:
        """The largest load of a stage over the mean."""
        loads = self.shares()
        return max(loads) * len(loads) / sum(loads) if sum(loads) else 1.0


def capacity_s(work: Work, peers: Sequence[Peer], stage: int) -> float:
    """Return the seconds that the peers of a stage together need for each micro-batch; infinite without peers."""
    speed = sum(peer.speed for peer in peers if peer.up and peer.stage == stage)
    return work.stage_s(stage) / speed if speed else float("inf")
