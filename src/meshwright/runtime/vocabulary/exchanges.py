"""What all pipeline ranks exchange around the passes of their shares, each kind on communicators of its own.

========================================  ==============================================================================
act                                       what it does
========================================  ==============================================================================
``enter``                                 hands over this rank's part of a sum, or what it broadcasts, and goes on
``arrive``                                waits for what another rank broadcasts
``take``                                  what an exchange brings to a pass, when it is there
========================================  ==============================================================================

Every exchange runs to its end aside, in the order of micro-batches. A rank posts its side of a broadcast so many
micro-batches ahead as the lists need (``rendezvous.posted_ahead``): a library's broadcast goes from rank to rank.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from meshwright.program.items import Collective
from meshwright.program.meetings import Exchange, exchange_of, root, sender
from meshwright.program.rendezvous import posted_ahead
from meshwright.program.shape import ACTIVATION_BYTES
from meshwright.runtime.block_run import Exchanging
from meshwright.runtime.communicator import Communicator
from meshwright.runtime.kernels.kernel import Value, tensor_exchange
from meshwright.runtime.rank_plan import RankPlan
from meshwright.runtime.vocabulary.aside import Aside, Made
from meshwright.runtime.vocabulary.share_run import Logits
from meshwright.schedule.action import BROADCASTS, EXCHANGES, Action, Kind
from meshwright.schedule.dependencies import exchange_before, key_of

BRINGS: dict[Kind, str] = {
    "REDUCE_E": "F",
    "BROADCAST_F": "S",
    "REDUCE_S": "T",
    "REDUCE_T": "B",
    "BROADCAST_B": "D",
}
"""The pass that needs what an exchange brings; with one exchange behind S, B needs the gradient that it brings too."""
LEFT_OVER = "what was exchanged was left over"


class UnderWay(Protocol):
    """An exchange that goes on by itself."""

    def result(self) -> Made:
        """What it brings to passes of this rank, by their kinds, when it has ended."""


@dataclass
class Exchanges:
    """All exchanges of one rank in one step. ``due`` are broadcasts of others that are not posted yet."""

    plan: RankPlan
    ahead: int = field(init=False)
    due: dict[Kind, deque[Action]] = field(default_factory=dict)
    pending: dict[Exchange, UnderWay] = field(default_factory=dict)
    made: dict[Exchange, dict[str, Value]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        program = self.plan.program
        self.placement = tuple(stage.rank for stage in program.stages)
        self.peers = program.grid.group_of(self.plan.communicator.rank, ("pp",))
        self.ahead = posted_ahead(program.lists, self.placement, program.ways)
        self.asides = {kind: Aside(self.plan.communicator.device) for kind in EXCHANGES}

    def begin_step(self) -> None:
        """Post the first broadcasts of others."""
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
        """Whether this rank is the one that broadcasts."""
        return sender(kind, self.placement) == self.plan.pipeline_rank

    def enter(self, action: Action, part: torch.Tensor | Logits) -> None:
        """Take part with what a pass has made."""
        self._begin(action, part)

    def arrive(self, action: Action) -> None:
        """Wait for what is broadcast, and post the next one."""
        self.pending[exchange_of(action)].result()
        self._post(action.kind)

    def take(self, action: Action) -> Value:
        """What an exchange brings to a pass."""
        kind = exchange_before(action, self.plan.program.ways)
        assert kind is not None
        assert action.micro_batch is not None
        exchange = kind, action.micro_batch
        if exchange not in self.made:
            self.made[exchange] = dict(self.pending.pop(exchange).result())
        value = self.made[exchange].pop(key_of(action)[0])
        if not self.made[exchange]:
            del self.made[exchange]
        return value

    def end_step(self) -> None:
        """Wait for all that this rank takes part in. Everything that came has been taken."""
        for pending in self.pending.values():
            assert not pending.result(), LEFT_OVER
        self.pending.clear()
        assert not any((self.made, *self.due.values())), LEFT_OVER

    def brings(self, kind: Kind) -> Iterator[str]:
        """The passes of this rank that need what an exchange brings."""
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
        """The operations of an exchange, one after the other."""
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
        """The statistics of the softmax, and with them the gradient of X, where S has made it."""
        statistics = [item for item in items if "pp" in item.axes and item.kind == "all-reduce"]
        for item in statistics:
            Exchanging(logits.softmax.exchange(item, communicator)).begin().finish()
        if logits.pull is None:
            return {"T": logits.softmax}
        x = self._passed(logits.gradient(), items[len(statistics) :], communicator, kind)
        return dict.fromkeys(self.brings(kind), x) | {"T": logits.softmax}

    def _passed(
        self, x: torch.Tensor, items: Sequence[Collective], communicator: Communicator, kind: Kind
    ) -> torch.Tensor:
        """A value behind collectives."""
        for item in items:
            if item.kind in ("reduce", "broadcast"):
                x = x.contiguous()
                whose = self.peers[root(kind, self.placement)]
                communicator.start(item, x, ACTIVATION_BYTES, root=whose).wait()
            else:
                x = Exchanging(tensor_exchange(communicator, item, x)).begin().finish()
        return x
