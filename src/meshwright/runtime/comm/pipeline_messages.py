"""Messages between pipeline ranks: sent without waiting, received in the sender's order.

A channel is a (sender, receiver) pair: one first-in-first-out queue for activations and gradients together, in the
order of the sender's action list. A receiver posts its receives in that order, at least up to the message it needs;
messages that arrive early wait here. A list that uses messages in another order than they are sent (chunks in a V)
therefore cannot take a wrong message of equal shape. If a step is restarted, its senders restart too: what they sent
before is dropped, and receives that were posted for later messages take the repeated ones. Sent tensors are held until
their work has ended, at the latest until the end of the step.

Where two stages have different layouts, a message is several: each rank sends the pieces that ranks of the other stage
need (``reshard_exchange.py``). All pieces between two ranks keep that order.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from meshwright.program.lowering.optimizer_post_validation import before_validation
from meshwright.program.program import (
    Program,
    matching_receive,
    message_bytes,
    message_part,
    message_reshard,
)
from meshwright.runtime.comm.communicator import Communicator, Work
from meshwright.runtime.comm.reshard_exchange import PendingPieces, RankExchange, rank_exchange
from meshwright.schedules.action import Action

AHEAD = 4
"""Receives that are posted beyond the one that is needed."""


class Receive(Protocol):
    """A message that is received."""

    def result(self) -> torch.Tensor:
        """Wait for the message and return it."""


@dataclass(frozen=True, slots=True)
class WholeMessage:
    """A message that one rank sends."""

    tensor: torch.Tensor
    work: Work

    def result(self) -> torch.Tensor:
        """Wait for the message and return it."""
        self.work.wait()
        return self.tensor


@dataclass
class PipelineMessages:
    """All pipeline messages of one rank in one step. ``empty`` allocates memory for a message to a part's block."""

    program: Program
    communicator: Communicator
    pipeline_rank: int
    empty: Callable[[int], torch.Tensor]
    peers: dict[int, int] = field(init=False)
    expected: dict[int, deque[Action]] = field(init=False)
    posted: dict[Action, Receive] = field(default_factory=dict)
    exchanges: dict[tuple[int, int], RankExchange] = field(default_factory=dict)
    sent: list[tuple[Work, torch.Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.peers = dict(enumerate(self.program.parts.pipeline_of(self.communicator.rank)))
        self.begin_step()

    def begin_step(self) -> None:
        """Expect every message of a step, in the order of its sender's list."""
        self.expected = {}
        for source in self.peers:
            row = deque(self._comes(self.program.lists[source]))
            if row:
                self.expected[source] = row

    def begin_anew(self) -> None:
        """Drop the messages sent before VALIDATE, some perhaps in flight, and expect all messages again."""
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
                receive = posted.pop(0) if posted else self._posted(source, void[0])
                receive.result()
            self.posted |= {self.expected[source].popleft(): receive for receive in posted}

    def send(self, action: Action, tensor: torch.Tensor) -> None:
        """Send the tensor of a SEND action without waiting."""
        receive = matching_receive(action)
        assert receive.stage is not None
        target = self.peers[self.program.stages[receive.stage].rank]
        self.sent = [(work, sent) for work, sent in self.sent if not work.is_completed()]
        exchange = self._exchange(action)
        if exchange is not None:
            self.sent += exchange.send(self.communicator, tensor, str(action))
            return
        tensor = tensor.contiguous()
        size = message_bytes(self.program, action, self.communicator.rank)
        work = self.communicator.send(tensor, target, str(action), size)
        self.sent.append((work, tensor))

    def receive(self, action: Action) -> torch.Tensor:
        """Wait for the message of a RECV action and return it."""
        if action not in self.posted:
            self._post(next(rank for rank, row in self.expected.items() if action in row), action)
        return self.posted.pop(action).result()

    def end_step(self) -> None:
        """Wait until all sends have ended. Every expected message must have been taken."""
        for work, _ in self.sent:
            work.wait()
        self.sent.clear()
        assert not any((self.posted, *self.expected.values())), "messages were left over"

    def _post(self, source: int, action: Action) -> None:
        """Post the receives of a channel up to ``action``, and ``AHEAD`` beyond it."""
        row = self.expected[source]
        needed = row.index(action) + 1
        for _ in range(min(len(row), needed + AHEAD)):
            due = row.popleft()
            self.posted[due] = self._posted(source, due)

    def _posted(self, source: int, receive: Action) -> Receive:
        """Start to receive a message, or its pieces."""
        exchange, tensor = self._exchange(receive), self.empty(message_part(self.program, receive))
        if exchange is not None:
            pieces = exchange.post(self.communicator, tensor, str(receive))
            return PendingPieces(exchange, pieces, tensor)
        return WholeMessage(tensor, self.communicator.receive(tensor, self.peers[source], str(receive)))

    def _exchange(self, message: Action) -> RankExchange | None:
        """Return this rank's share of a message between two layouts; None between stages of one."""
        reshard = message_reshard(self.program, message)
        if reshard is None:
            return None
        assert message.stage is not None
        way = message.kind.endswith("_B")
        key = message.stage, way + 2 * message.kind.startswith("RECV")
        if key not in self.exchanges:
            rank = self.communicator.rank
            self.exchanges[key] = rank_exchange(self.program.parts, reshard, "B" if way else "F", rank)
        return self.exchanges[key]

    def _source(self, receive: Action) -> int:
        assert receive.stage is not None
        return self.program.stages[receive.stage + (-1 if receive.kind == "RECV_F" else 1)].rank

    def _comes(self, actions: Sequence[Action]) -> list[Action]:
        """Return this rank's receives that match the sends among ``actions``, in order."""
        receives = (matching_receive(action) for action in actions if action.kind in ("SEND_F", "SEND_B"))
        return [r for r in receives if self.program.stages[r.stage or 0].rank == self.pipeline_rank]
