"""Move peers between stages, and place joining ones, by the loads of the stages (SWARM, arXiv 2301.11913).

Every ``EVERY_S`` the least loaded stage gives a peer to the most loaded one. SWARM's load is the length of the queues.
In a step that begins and ends with empty queues their lengths say more about a stage's place than about its load, so
that here a load is the part of the peers' time that passes take since the last move. A peer moves when a step has
ended, is away while it reads the states of its new stage, and stays where the move would not make the slower of both
stages faster.
"""

from collections.abc import Sequence
from math import inf

from meshwright.simulate.churn.peers import Peer, StageLoads, Work, capacity_s

EVERY_S = 300.0
"""Seconds from one move to the next."""


class Rebalancing:
    """The moves of peers between stages, with the loads since the last one."""

    def __init__(self, work: Work, every_s: float = EVERY_S) -> None:
        self._work, self.every_s, self._next_s = work, every_s, every_s
        self._since = StageLoads.zero(work.stages)

    def add(self, loads: StageLoads) -> None:
        """Add the loads of a step."""
        self._since.add(loads)

    def stage_for(self, peers: Sequence[Peer]) -> int:
        """Return the stage of a peer that joins: the one whose peers need longest for a micro-batch."""
        return max(range(self._work.stages), key=lambda stage: (capacity_s(self._work, peers, stage), -stage))

    def move(self, peers: Sequence[Peer], now_s: float) -> Peer | None:
        """Move a peer if it is time to; return it."""
        if now_s < self._next_s:
            return None
        self._next_s = now_s - now_s % self.every_s + self.every_s
        loads, self._since = self._since.shares(), StageLoads.zero(self._work.stages)
        there = [[peer for peer in peers if peer.up and peer.stage == at] for at in range(len(loads))]
        loads = [load if present else inf for load, present in zip(loads, there, strict=True)]
        most = max(range(len(loads)), key=lambda stage: (loads[stage], -stage))
        givers = [stage for stage, present in enumerate(there) if len(present) > 1 and stage != most]
        if not givers:
            return None
        least = min(givers, key=lambda stage: (loads[stage], stage))
        peer = min(there[least], key=lambda one: (one.speed, -one.index))
        before_s = self._slower_s(peers, least, most)
        peer.stage = most
        if self._slower_s(peers, least, most) < before_s:
            return peer
        peer.stage = least
        return None

    def _slower_s(self, peers: Sequence[Peer], *stages: int) -> float:
        return max(capacity_s(self._work, peers, stage) for stage in stages)
