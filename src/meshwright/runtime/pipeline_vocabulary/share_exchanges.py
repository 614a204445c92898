"""Exchanges of all pipeline ranks around the passes of their vocabulary shares, each kind on its own communicators.

========================================  ==============================================================================
call                                      what it does
========================================  ==============================================================================
``enter``                                 starts with this rank's part of a sum, or its broadcast, and returns at once
``arrive``                                waits for another rank's broadcast
``take``                                  waits for the value that an exchange brings to a pass
========================================  ==============================================================================

Every exchange runs to its end in the background, in the order of micro-batches. A rank posts its side of a broadcast
as many micro-batches ahead as the lists need (``rendezvous.posted_ahead``), because a library's broadcast passes from
rank to rank.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from meshwright.program.local_shape import ACTIVATION_BYTES
from meshwright.program.pass_items import Collective
from meshwright.program.pipeline_messages.all_rank_exchanges import Exchange, exchange_of, root, sender
from meshwright.program.pipeline_messages.nccl_deadlock_check import posted_ahead
from meshwright.runtime.comm.communicator import Communicator
from meshwright.runtime.executor.block_passes import PendingExchange
from meshwright.runtime.executor.rank_plan import RankPlan
from meshwright.runtime.kernels.kernel import Value, tensor_exchange
from meshwright.runtime.pipeline_vocabulary.background_queue import BackgroundQueue, Made
from meshwright.runtime.pipeline_vocabulary.share_passes import Logits
from meshwright.schedules.action import BROADCASTS, EXCHANGES, Action, Kind
from meshwright.schedules.dependencies import dependency_key, exchange_before

BRINGS: dict[Kind, str] = {
    "REDUCE_E": "F",
    "BROADCAST_F": "S",
    "REDUCE_S": "T",
    "REDUCE_T": "B",
    "BROADCAST_B": "D",
}
"""The pass that needs an exchange's result; with one exchange after S, B needs the gradient from REDUCE_S too."""
LEFT_OVER = "what was exchanged was left over"


class UnderWay(Protocol):
    """An exchange that runs in the background."""

    def result(self) -> Made:
        """Wait for the end and return the values for passes of this rank, by kind of pass."""


@dataclass
class Exchanges:
    """All exchanges of one rank in one step. ``due`` are other ranks' broadcasts that are not posted yet."""

    plan: RankPlan
    ahead: int = field(init=False)
    due: dict[Kind, deque[Action]] = field(default_factory=dict)
    pending: dict[Exchange, UnderWay] = field(default_factory=dict)
    made: dict[Exchange, dict[str, Value]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        program = self.plan.program
        self.placement = tuple(stage.rank for stage in program.stages)
        self.peers = program.parts.pipeline_of(self.plan.communicator.rank)
        self.ahead = posted_ahead(program.lists, self.placement, program.ways)
        self.asides = {kind: BackgroundQueue(self.plan.communicator.device) for kind in EXCHANGES}

    def begin_step(self) -> None:
        """Post the first broadcasts of other ranks."""
        actions = self.plan.program.lists[self.plan.pipeline_rank]
        self.due = {
            kind: deque(action for action in actions if action.kind == kind)
            for kind in BROADCASTS
            if not self.sends(kind)
        }
        for kind in self.due:
            for _ in range(self.ahead):
                self._post(kind)

    def sends(self, kind: Kind) -> bool:
        """Return whether this rank is the sender of a broadcast."""
        return sender(kind, self.placement) == self.plan.pipeline_rank

    def enter(self, action: Action, part: torch.Tensor | Logits) -> None:
        """Start an exchange with a pass's result."""
        self._begin(action, part)

    def arrive(self, action: Action) -> None:
        """Wait for a broadcast, and post the next one."""
        self.pending[exchange_of(action)].result()
        self._post(action.kind)

    def take(self, action: Action) -> Value:
        """Return the value that an exchange brings to a pass."""
        kind = exchange_before(action, self.plan.program.ways)
        assert kind is not None
        assert action.micro_batch is not None
        exchange = kind, action.micro_batch
        if exchange not in self.made:
            self.made[exchange] = dict(self.pending.pop(exchange).result())
        value = self.made[exchange].pop(dependency_key(action)[0])
        if not self.made[exchange]:
            del self.made[exchange]
        return value

    def end_step(self) -> None:
        """Wait for all exchanges of this rank. All their values must have been taken."""
        for pending in self.pending.values():
            assert not pending.result(), LEFT_OVER
        self.pending.clear()
        assert not any((self.made, *self.due.values())), LEFT_OVER

    def brings(self, kind: Kind) -> Iterator[str]:
        """Yield the passes of this rank that need an exchange's result."""
        here = root(kind, self.placement) == self.plan.pipeline_rank
        if here or kind in (*BROADCASTS, "REDUCE_S"):
            yield BRINGS[kind]
        if here and kind == "REDUCE_S" and self.plan.program.ways.barriers == 1:
            yield "B"

    def _post(self, kind: Kind) -> None:
        if self.due[kind]:
            self._begin(self.due[kind].popleft(), None)

    def _begin(self, action: Action, part: torch.Tensor | Logits | None) -> None:
        exchange = exchange_of(action)
        assert exchange not in self.pending, action
        self.pending[exchange] = self.asides[action.kind].begin(lambda: self._run(action, part), part)

    def _run(self, action: Action, part: torch.Tensor | Logits | None) -> Made:
        """Run the operations of an exchange, one after another."""
        items = self.plan.program.collectives[action.stage, action.kind]
        communicator, kind = self.plan.communicator.aside(action), action.kind
        if isinstance(part, Logits):
            return self._softmax(part, items, communicator, kind)
        if part is None:
            part = self.plan.message_buffer(whole=kind == "BROADCAST_B")
        x = self._passed(part, items, communicator, kind)
        return dict.fromkeys(self.brings(kind), x)

    def _softmax(
        self, logits: Logits, items: Sequence[Collective], communicator: Communicator, kind: Kind
    ) -> Made:
        """Exchange the softmax statistics, and with them the gradient of X if S has computed it."""
        statistics = [item for item in items if "pp" in item.axes and item.kind == "all-reduce"]
        for item in statistics:
            PendingExchange(logits.softmax.exchange(item, communicator)).begin().finish()
        if logits.pull is None:
            return {"T": logits.softmax}
        x = self._passed(logits.gradient(), items[len(statistics) :], communicator, kind)
        return dict.fromkeys(self.brings(kind), x) | {"T": logits.softmax}

    def _passed(
        self, x: torch.Tensor, items: Sequence[Collective], communicator: Communicator, kind: Kind
    ) -> torch.Tensor:
        """Return a value after collectives."""
        for item in items:
            if item.kind in ("reduce", "broadcast"):
                x = x.contiguous()
                whose = self.peers[root(kind, self.placement)]
                communicator.start(item, x, ACTIVATION_BYTES, root=whose).wait()
            else:
                x = PendingExchange(tensor_exchange(communicator, item, x)).begin().finish()
        return x
