"""Simulate the passes of one step while peers leave and join, event by event.

Messages are those of ``play/messages_and_barriers.py``: one at a time on each link, and each keeps its sender for a
part of its time. ``peer_passes.py`` has the order of passes.

What a lost peer held is computed again from saved inputs, by another peer of its stage: senders keep what they sent
until the step ends, and send it again without keeping a link. A pass that waited or ran starts again. A backward pass
whose activations were lost comes behind a new forward pass. Gradients that the peer had accumulated are computed again,
too, so that a step has the gradient of the same batch. A pass that needs a stage without peers waits for one.
"""

from collections.abc import Callable, Sequence
from math import inf

from meshwright.simulate.churn.churn_trace import ChurnTrace
from meshwright.simulate.churn.peer_passes import Event, PeerPasses, Task
from meshwright.simulate.churn.peer_routing import Router
from meshwright.simulate.churn.peers import Peer, StageLoads, Work

Place = Callable[[Peer], int]
"""A peer that joins → its stage."""


class StepEvents:
    """The passes of a step from ``begin_s``. ``disturbed`` is true if a peer left or joined."""

    def __init__(
        self,
        work: Work,
        peers: Sequence[Peer],
        router: Router,
        trace: ChurnTrace,
        place: Place,
        begin_s: float = 0.0,
        in_order: bool = True,
    ) -> None:
        self._work, self._peers, self._router, self._trace, self._place = work, peers, router, trace, place
        self.disturbed = False
        self._passes = PeerPasses(work, peers, begin_s, in_order)
        self._paths = router.paths()
        self._left = len(self._paths)
        self._holders: dict[tuple[int, int], tuple[Peer, int]] = {}
        self._waiting: dict[int, list[Task]] = {}
        self._links: dict[tuple[int, int], float] = {}

    @property
    def loads(self) -> StageLoads:
        """The loads of the stages so far."""
        return self._passes.loads

    def run(self) -> float:
        """Return when the last pass has ended."""
        passes, events = self._passes, self._passes.events
        for micro_batch in range(len(self._paths)):
            self._forward(micro_batch, 0, None)
        while self._left:
            changes_s = self._trace.next_s
            if events.next_s <= changes_s and events.next_s < inf:
                passes.go_to(events.next_s)
                self._happens(events.pop())
            elif changes_s < inf:
                self._change()
            else:
                assert passes.in_order, "passes wait for a peer that never comes"
                passes.leave_order()
        return passes.now_s

    def _happens(self, event: Event) -> None:
        peer, task, passes = event.peer, event.task, self._passes
        same = peer.up and peer.lives == event.life
        if event.what == "arrives" and task is not None:
            if same:
                passes.queue(peer, task)
            else:
                self._again(task)
        elif same:
            if event.what == "ends" and task is not None:
                self._end(peer, task)
            passes.pick(peer)

    def _change(self) -> None:
        """Let a peer leave or join."""
        change, passes = self._trace.pop(), self._passes
        passes.go_to(change.at_s)
        self.disturbed, peer = True, self._peers[change.peer]
        if change.joins:
            peer.stage, peer.up = self._place(peer), True
            passes.join(peer)
            tasks = self._waiting.pop(peer.stage, [])
        else:
            tasks = passes.lose(peer) if peer.up else []
            peer.up, peer.lives = False, peer.lives + 1
            self._left += sum(task.kind == "R" and not task.again for task in tasks)
        passes.leave_order()
        for task in tasks:
            self._again(task)

    def _end(self, peer: Peer, task: Task) -> None:
        """Send on what a pass has made."""
        self._passes.finish(peer, task)
        self._router.measured(peer, 1 / peer.speed)
        if task.kind == "F":
            self._holders[task.micro_batch, task.at] = peer, peer.lives
            self._forward(task.micro_batch, task.at + 1, peer)
        elif task.kind == "R" or task.at == 0:
            self._left -= 1
        else:
            path = self._paths[task.micro_batch]
            self._back(Task(task.micro_batch, task.at - 1, path[task.at - 1], "B"), peer)

    def _forward(self, micro_batch: int, at: int, sender: Peer | None) -> None:
        """Send a micro-batch on to a peer of its next stage, or of the one behind that if it may skip it."""
        path = self._paths[micro_batch]
        while at < len(path):
            stage = path[at]
            task = Task(micro_batch, at, stage, "F")
            target = self._router.choose(micro_batch, stage, self._there(stage))
            if target is not None:
                self._send(task, sender, target)
                return
            if not self._router.may_skip(stage):
                self._waiting.setdefault(stage, []).append(task)
                return
            del path[at]
        task = Task(micro_batch, at - 1, path[at - 1], "B")
        holder = self._holder(task)
        if holder is None:
            self._again(task)
        else:
            self._passes.queue(holder, task)

    def _back(self, task: Task, sender: Peer) -> None:
        """Send a gradient back to the peer that holds the activations, or to another one if they are lost."""
        holder = self._holder(task)
        if holder is None:
            self._again(task)
        else:
            self._send(task, sender, holder)

    def _again(self, task: Task) -> None:
        """Give a task that was lost to another peer, with saved copies of what it needs."""
        if task.kind == "F":
            self._forward(task.micro_batch, task.at, None)
            return
        target = self._router.choose(task.micro_batch, task.stage, self._there(task.stage))
        task.again = True
        if target is None:
            self._waiting.setdefault(task.stage, []).append(task)
        else:
            self._send(task, None, target)

    def _there(self, stage: int) -> list[Peer]:
        return self._passes.there[self._work.host(stage)]

    def _holder(self, task: Task) -> Peer | None:
        """Return the peer that has a micro-batch's activations at a place of its path, if it is still there."""
        peer, life = self._holders[task.micro_batch, task.at]
        return peer if peer.up and peer.lives == life else None

    def _send(self, task: Task, sender: Peer | None, target: Peer) -> None:
        """Send what a task needs. Without a sender it is a saved copy; the first stage has its input itself."""
        passes, path = self._passes, self._paths[task.micro_batch]
        if sender is target or (sender is None and task.kind == "F" and task.at == 0):
            passes.queue(target, task)
            return
        comes_back = task.kind != "F" and task.at + 1 < len(path)
        kind, stage = ("B", path[task.at + 1]) if comes_back else ("F", path[max(0, task.at - 1)])
        source = target if sender is None else sender
        seconds = self._work.message_s(kind, stage, source.index, target.index)
        start_s = passes.now_s
        if sender is not None:
            link = sender.index, target.index
            start_s = max(self._links.get(link, 0.0), start_s)
            self._links[link] = start_s + seconds
            passes.keep_until(sender, start_s + self._work.occupancy * seconds)
        passes.events.add(start_s + seconds, "arrives", target, task)
