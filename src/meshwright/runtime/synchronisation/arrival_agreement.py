"""Agree on the replicas that count in a step, through the store that all ranks share.

A replica has arrived when all of its ranks have made their passes. The replica whose arrival completes the quorum
writes the decision, which all ranks read before gradients cross replicas. Ranks look for it before every pass: those of
a late replica then make no more passes of the step, pass zeros on in their pipeline, and take part in the sums with
nothing. So the others wait for the pass that a late replica is in, never for its step.

Ranks that exchange inside of passes, those of a replica with the same stages, must stop before the same pass. The first
of them says so for each pass.

Store keys have island and step; those of an earlier step are deleted.
"""

import json
from dataclasses import dataclass, field
from time import perf_counter

import torch.distributed as dist

from meshwright.program.program import Program
from meshwright.program.synchronisation.dynamic_quorum import DynamicQuorum
from meshwright.program.synchronisation.islands import islands
from meshwright.program.synchronisation.replica_arrivals import LateReplicas

KEPT_STEPS = 2
"""Steps after which keys of a step are deleted: by then every rank has read them."""


@dataclass
class AgreedArrivals:
    """One rank's side. ``replica`` is its place on the axis, ``peers`` the number of its replica's ranks.

    ``island`` names the ranks that decide together. ``together`` are those that exchange inside of the rank's passes,
    this rank among them.
    """

    store: dist.Store
    late: LateReplicas
    replica: int
    peers: int
    rank: int
    together: tuple[int, ...]
    island: int = 0
    step: int = 0
    began: float = 0.0
    passes: int = 0
    stopped: bool = False
    policy: DynamicQuorum = field(init=False)
    keys: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.policy = DynamicQuorum(self.late.replicas, self.late.least)

    @property
    def needed(self) -> int:
        """The replicas that this step waits for."""
        return self.policy.quorum if self.late.needed is None else self.late.needed

    def begin(self, step: int) -> None:
        """Begin a step."""
        self.step, self.began, self.passes, self.stopped = step, perf_counter(), 0, False

    def stops(self) -> bool:
        """Return true if the decision has been made without this rank's replica."""
        if self.stopped:
            return True
        self.passes += 1
        if len(self.together) == 1:
            self.stopped = self._is_late()
            return self.stopped
        key = self._key("pass", self.together[0], self.passes)
        if self.rank == self.together[0]:
            self._set(key, str(int(self._is_late())))
        self.stopped = self.store.get(key) == b"1"
        return self.stopped

    def settle(self, step: int) -> tuple[int, ...]:
        """Announce this rank, wait for the decision and return it."""
        decision = self._key("decided")
        if not self.stopped and not self.store.check([decision]):
            self._announce(decision)
        arrivals = json.loads(self.store.get(decision))
        if self.late.needed is None:
            self.policy.observe([seconds for _, seconds in arrivals])
        self._forget()
        return tuple(sorted(replica for replica, _ in arrivals))

    def _announce(self, decision: str) -> None:
        mine = self._key("made", self.replica)
        if self.store.add(mine, 1) < self.peers:
            return
        self.keys.append((self.step, mine))
        order = self.store.add(self._key("order"), 1)
        arrival = json.dumps((self.replica, perf_counter() - self.began))
        self._set(self._key("arrival", order), arrival)
        if order == self.needed:
            names = [self._key("arrival", place) for place in range(1, order + 1)]
            self._set(decision, json.dumps([json.loads(self.store.get(name)) for name in names]))
            self.keys.append((self.step, self._key("order")))

    def _is_late(self) -> bool:
        decision = self._key("decided")
        if not self.store.check([decision]):
            return False
        return all(replica != self.replica for replica, _ in json.loads(self.store.get(decision)))

    def _set(self, key: str, value: str) -> None:
        self.store.set(key, value)
        self.keys.append((self.step, key))

    def _forget(self) -> None:
        """Delete what this rank wrote some steps ago."""
        while self.keys and self.keys[0][0] <= self.step - KEPT_STEPS:
            self.store.delete_key(self.keys.pop(0)[1])

    def _key(self, *parts: object) -> str:
        return "/".join(map(str, ("arrivals", self.island, self.step, *parts)))


def agreed_arrivals(store: dist.Store, program: Program, late: LateReplicas, rank: int) -> AgreedArrivals:
    """Return a rank's side of the agreement."""
    grid, axis = program.parts[0].grid, late.said.axis
    place = grid.coordinates(rank)
    own = next(ranks for ranks in islands(grid, program.loose) if rank in ranks)
    of_replica = [r for r in own if grid.coordinates(r)[axis] == place[axis]]
    together = tuple(r for r in of_replica if grid.coordinates(r)["pp"] == place["pp"])
    return AgreedArrivals(store, late, place[axis], len(of_replica), rank, together, min(own))
