"""Messages between pipeline ranks: sent without waiting, received in the order of the sender's list.

A channel is (sender, receiver): one first-in-first-out row for activations and gradients together, in the order in
which the sender's list produces them. A receiver posts its receives in that order, at least up to the message that it
needs; what arrives early waits here. So a list whose order of use differs from the order of sending (chunks in a V)
can not take the wrong message of equal shape. Where a step begins anew, the senders do so too: what they have sent is
dropped, and receives that were posted for what comes later take what comes again. Sent tensors are held until their
work has ended, at the latest at the end of the step.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from meshwright.program.program import Program, matching_receive
from meshwright.program.step_validation import before_validation
from meshwright.runtime.communicator import Communicator, Work
from meshwright.schedule.action import Action

AHEAD = 4
"""Receives that are posted beyond the one that is needed."""


@dataclass
class Channels:
    """All messages of one rank in one step."""

    program: Program
    communicator: Communicator
    pipeline_rank: int
    empty: Callable[[], torch.Tensor]
    peers: dict[int, int] = field(init=False)
    expected: dict[int, deque[Action]] = field(init=False)
    posted: dict[Action, tuple[torch.Tensor, Work]] = field(default_factory=dict)
    sent: list[tuple[Work, torch.Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        members = self.program.grid.group_of(self.communicator.rank, ("pp",))
        self.peers = dict(enumerate(members))
        self.begin_step()

    def begin_step(self) -> None:
        """Expect every message of a step, in the order of its sender's list."""
        self.expected = {}
        for source in self.peers:
            row = deque(self._comes(self.program.lists[source]))
            if row:
                self.expected[source] = row

    def begin_anew(self) -> None:
        """Drop what was sent before VALIDATE, of which some may be on its way, and expect all messages again."""
        earlier = [
            (source, self._comes(before_validation(self.program.lists[source]))) for source in self.peers
        ]
        left = self.expected
        self.begin_step()
        for source, void in earlier:
            posted = [
                self.posted.pop(action) for action in list(self.posted) if self._source(action) == source
            ]
            taken = len(self._comes(self.program.lists[source])) - len(posted) - len(left.get(source, ()))
            for _ in range(len(void) - taken):
                _, work = posted.pop(0) if posted else self._posted(source, "what is void")
                work.wait()
            self.posted |= {self.expected[source].popleft(): receive for receive in posted}

    def send(self, action: Action, tensor: torch.Tensor) -> None:
        """Send the result that a SEND action names; do not wait."""
        receive = matching_receive(action)
        assert receive.stage is not None
        target = self.peers[self.program.stages[receive.stage].rank]
        self.sent = [(work, sent) for work, sent in self.sent if not work.is_completed()]
        tensor = tensor.contiguous()
        self.sent.append((self.communicator.send(tensor, target, str(action)), tensor))

    def receive(self, action: Action) -> torch.Tensor:
        """The message that a RECV action names, when it has arrived."""
        if action not in self.posted:
            self._post(next(rank for rank, row in self.expected.items() if action in row), action)
        tensor, work = self.posted.pop(action)
        work.wait()
        return tensor

    def end_step(self) -> None:
        """Wait until all that was sent has left. Every expected message has been taken."""
        for work, _ in self.sent:
            work.wait()
        self.sent.clear()
        assert not any((self.posted, *self.expected.values())), "messages were left over"

    def _post(self, source: int, action: Action) -> None:
        """Post receives of a channel up to ``action``, and some beyond it."""
        row = self.expected[source]
        needed = row.index(action) + 1
        for _ in range(min(len(row), needed + AHEAD)):
            due = row.popleft()
            self.posted[due] = self._posted(source, str(due))

    def _posted(self, source: int, what: str) -> tuple[torch.Tensor, Work]:
        tensor = self.empty()
        return tensor, self.communicator.receive(tensor, self.peers[source], what)

    def _source(self, receive: Action) -> int:
        assert receive.stage is not None
        return self.program.stages[receive.stage + (-1 if receive.kind == "RECV_F" else 1)].rank

    def _comes(self, actions: Sequence[Action]) -> list[Action]:
        """This rank's receives that answer the sends of some actions, in their order."""
        receives = (matching_receive(action) for action in actions if action.kind in ("SEND_F", "SEND_B"))
        return [r for r in receives if self.program.stages[r.stage or 0].rank == self.pipeline_rank]
