"""Run the passes that wait at peers, one at a time on each, and count how loaded the stages are.

Until something is disturbed, a peer runs its passes in the order of the plan's schedule. From then on backward passes
go first, and a forward pass runs while the peer holds fewer micro-batches than the schedule allows.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from meshwright.simulate.churn.peers import Peer, StageLoads, Work


@dataclass(slots=True, eq=False)
class Task:
    """A pass of a micro-batch at a place of its path.

    ``kind``: F, B, or R for gradients that were lost. ``again``: its forward pass is run once more.
    """

    micro_batch: int
    at: int
    stage: int
    kind: str
    again: bool = False


class Event(NamedTuple):
    """Something that happens at a peer in one of its lives: a task ``arrives`` or ``ends``, or it ``is free``."""

    at_s: float
    number: int
    what: str
    peer: Peer
    life: int
    task: Task | None


class Events:
    """Events to come, in the order of their times and then of their making."""

    def __init__(self) -> None:
        self._heap: list[Event] = []
        self._number = 0

    @property
    def next_s(self) -> float:
        """The time of the next event; infinite if there is none."""
        return self._heap[0].at_s if self._heap else inf

    def add(self, at_s: float, what: str, peer: Peer, task: Task | None = None) -> None:
        """Add an event in the present life of a peer."""
        self._number += 1
        heapq.heappush(self._heap, Event(at_s, self._number, what, peer, peer.lives, task))

    def pop(self) -> Event:
        """Return the next event."""
        return heapq.heappop(self._heap)


@dataclass(slots=True)
class _Worker:
    """A peer's state in a step: queues by kind, held micro-batches with their visits, and finished gradients."""

    queues: dict[str, deque[Task]] = field(default_factory=lambda: {kind: deque() for kind in "BRF"})
    held: dict[int, int] = field(default_factory=dict)
    gradients: list[Task] = field(default_factory=list)
    running: Task | None = None
    free_s: float = 0.0
    place: int = 0


class PeerPasses:
    """The passes at all peers in one step. ``in_order``: in the order of the plan's schedule."""

    def __init__(self, work: Work, peers: Sequence[Peer], now_s: float, in_order: bool) -> None:
        self._work, self.in_order, self.now_s = work, in_order and bool(work.orders), now_s
        self.events, self.loads = Events(), StageLoads.zero(work.stages)
        self.there: list[list[Peer]] = [[] for _ in range(work.stages)]
        self._workers: dict[int, _Worker] = {}
        self._running = [0] * work.stages
        for peer in peers:
            if peer.up:
                self.join(peer)

    def go_to(self, now_s: float) -> None:
        """Add the time up to now to the loads."""
        took = now_s - self.now_s
        if took > 0:
            loads = self.loads
            for stage, there in enumerate(self.there):
                loads.busy[stage] += took * self._running[stage]
                loads.present[stage] += took * len(there)
        self.now_s = now_s

    def join(self, peer: Peer) -> None:
        """Take a peer in at its stage."""
        self._workers[peer.index] = _Worker()
        self.there[peer.stage].append(peer)
        self.there[peer.stage].sort(key=lambda one: one.index)

    def lose(self, peer: Peer) -> list[Task]:
        """Drop a peer and return its tasks: running, waiting, and finished ones whose gradients it had."""
        worker = self._workers.pop(peer.index)
        self.there[peer.stage].remove(peer)
        waiting = [task for queue in worker.queues.values() for task in queue]
        self._running[peer.stage] -= worker.running is not None
        ran = [] if worker.running is None else [worker.running]
        lost = [Task(task.micro_batch, task.at, task.stage, "R") for task in worker.gradients]
        return [*ran, *waiting, *lost]

    def leave_order(self) -> None:
        """Let every peer run whatever is ready."""
        if self.in_order:
            self.in_order = False
            for there in self.there:
                for peer in there:
                    self.pick(peer)

    def queue(self, peer: Peer, task: Task) -> None:
        """Add a task whose inputs are there, and run it if it may."""
        self._workers[peer.index].queues[task.kind].append(task)
        self.pick(peer)

    def keep_until(self, peer: Peer, free_s: float) -> None:
        """Keep a peer from passes until a message has left."""
        self._workers[peer.index].free_s = free_s
        if free_s > self.now_s:
            self.events.add(free_s, "is free", peer)

    def pick(self, peer: Peer) -> None:
        """Start the next pass of a peer if it is free and there is one."""
        worker = self._workers[peer.index]
        if worker.running is not None or worker.free_s > self.now_s:
            return
        task = self._next_in_order(peer, worker) if self.in_order else self._next_ready(peer, worker)
        if task is None:
            return
        if task.kind == "F" or (task.kind == "B" and task.again):
            worker.held[task.micro_batch] = worker.held.get(task.micro_batch, 0) + 1
        worker.running = task
        self._running[peer.stage] += 1
        self.events.add(self.now_s + self._seconds(task) / peer.speed, "ends", peer, task)

    def finish(self, peer: Peer, task: Task) -> None:
        """Take note that a pass has ended: what it made is held, or has become a gradient."""
        worker = self._workers[peer.index]
        worker.running = None
        self._running[peer.stage] -= 1
        if task.kind == "F":
            return
        worker.gradients.append(task)
        if task.kind == "B":
            worker.held[task.micro_batch] -= 1
            if not worker.held[task.micro_batch]:
                del worker.held[task.micro_batch]

    def _seconds(self, task: Task) -> float:
        work, forward = self._work, task.kind == "F" or task.again
        return (work.forward_s[task.stage] if forward else 0.0) + (
            0.0 if task.kind == "F" else work.backward_s[task.stage]
        )

    def _next_in_order(self, peer: Peer, worker: _Worker) -> Task | None:
        order = self._work.orders[peer.stage]
        if worker.place == len(order) or not worker.queues[order[worker.place]]:
            return None
        worker.place += 1
        return worker.queues[order[worker.place - 1]].popleft()

    def _next_ready(self, peer: Peer, worker: _Worker) -> Task | None:
        for kind in "BR":
            if worker.queues[kind]:
                return worker.queues[kind].popleft()
        room, forward = len(worker.held) < self._work.in_flight[peer.stage], worker.queues["F"]
        found = next((task for task in forward if room or task.micro_batch in worker.held), None)
        if found is not None:
            forward.remove(found)
        return found
