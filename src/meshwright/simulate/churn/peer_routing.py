"""Choose the peer that takes a micro-batch at a stage: by weighted round-robin, or by paths that were searched.

SWARM (arXiv 2301.11913): interleaved weighted round-robin. Every peer has a virtual time; the one with the least takes
the next micro-batch, and its time grows by the moving average of what a micro-batch takes it, so that peers get
micro-batches in proportion to their throughput. There every sender has virtual times of its own; here all share them.

SkipPipe (arXiv 2502.19913): each micro-batch has a path with a peer for each of its stages. Where that peer is lost,
another one of the stage takes its place; a stage that has none left is skipped, too, unless it is compulsory.
"""

from collections.abc import Sequence
from typing import Protocol

from meshwright.simulate.churn.peers import Peer

MOVING_AVERAGE = 0.1
"""Weight of the newest measured time in the average of a peer."""


class Router(Protocol):
    """The choices of a routing in one step."""

    def paths(self) -> list[list[int]]:
        """Return the stages of each micro-batch in the order of its visits, at the beginning of a step."""

    def choose(self, micro_batch: int, stage: int, there: Sequence[Peer]) -> Peer | None:
        """Return which peer of those at a stage takes a micro-batch; None if nobody is there."""

    def may_skip(self, stage: int) -> bool:
        """Return true if a micro-batch may leave a stage out that has no peer."""

    def measured(self, peer: Peer, slowness: float) -> None:
        """Take note of how long a pass took a peer, over what it takes a peer of speed 1."""


class WeightedRoundRobin:
    """SWARM's routing: every micro-batch visits all stages, at peers in proportion to their throughput."""

    def __init__(self, stages: int, micro_batches: int) -> None:
        self._stages, self._micro_batches = stages, micro_batches
        self._slowness: dict[int, float] = {}
        self._virtual: dict[tuple[int, int], float] = {}

    def paths(self) -> list[list[int]]:
        """Return all stages for each micro-batch; virtual times begin at 0."""
        self._virtual.clear()
        return [list(range(self._stages)) for _ in range(self._micro_batches)]

    def choose(self, micro_batch: int, stage: int, there: Sequence[Peer]) -> Peer | None:
        """Return the peer with the least virtual time; one that has just joined begins at the least of the others."""
        if not there:
            return None
        virtual = self._virtual
        keys = [(stage, peer.index) for peer in there]
        least = min((virtual[key] for key in keys if key in virtual), default=0.0)
        for key in keys:
            virtual.setdefault(key, least)
        found = min(there, key=lambda peer: (virtual[stage, peer.index], peer.index))
        virtual[stage, found.index] += self._slowness.get(found.index, 1.0)
        return found

    def may_skip(self, stage: int) -> bool:
        """Return false: every micro-batch visits every stage."""
        return False

    def measured(self, peer: Peer, slowness: float) -> None:
        """Move the average of a peer."""
        before = self._slowness.get(peer.index, 1.0)
        self._slowness[peer.index] = (1 - MOVING_AVERAGE) * before + MOVING_AVERAGE * slowness


class PlannedPaths:
    """SkipPipe's routing. ``planned`` has the (stage, peer) pairs of each micro-batch's path."""

    def __init__(
        self, planned: Sequence[Sequence[tuple[int, int]]], stages: int, compulsory: frozenset[int]
    ) -> None:
        self._planned, self._compulsory = planned, compulsory
        self._peer_of = [dict(path) for path in planned]
        self._others = WeightedRoundRobin(stages, len(planned))

    def paths(self) -> list[list[int]]:
        """Return the planned stages."""
        self._others.paths()
        return [[stage for stage, _ in path] for path in self._planned]

    def choose(self, micro_batch: int, stage: int, there: Sequence[Peer]) -> Peer | None:
        """Return the planned peer, or another one of the stage where that is lost."""
        planned = self._peer_of[micro_batch][stage]
        for peer in there:
            if peer.index == planned:
                return peer
        return self._others.choose(micro_batch, stage, there)

    def may_skip(self, stage: int) -> bool:
        """Return true for stages that are not compulsory."""
        return stage not in self._compulsory

    def measured(self, peer: Peer, slowness: float) -> None:
        """Ignore it: paths are planned."""
