"""Run the passes of a rank's vocabulary share, and pass values between them, the stages and the exchanges."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from meshwright.program.pipeline_messages.all_rank_exchanges import Exchange, exchange_of
from meshwright.runtime.executor.operator_call import MicroBatch
from meshwright.runtime.executor.rank_plan import RankPlan
from meshwright.runtime.kernels.kernel import Value
from meshwright.runtime.pipeline_vocabulary.share_exchanges import Exchanges
from meshwright.runtime.pipeline_vocabulary.share_passes import ShareRun
from meshwright.runtime.state.parameter_lifecycle import StepStates
from meshwright.schedules.action import BROADCASTS, Action, Kind

TP = ("tp",)


class SharePasses(Protocol):
    """A share on one micro-batch, from E until D."""

    def look_up(self) -> Value:
        """E: return the rows that REDUCE_E sums."""

    def logits(self, x: Value) -> Value:
        """S: return the statistics that REDUCE_S combines."""

    def gradients(self, softmax: Value) -> Value | None:
        """T: return the gradient that REDUCE_T sums, if there is one."""

    def loss(self, softmax: Value) -> torch.Tensor:
        """Return the loss, after the softmax is exchanged."""

    def add_rows(self, g: Value) -> None:
        """D: add the gradients of rows."""


class RankExchanges(Protocol):
    """One rank's exchanges with all others; see ``Exchanges``."""

    def begin_step(self) -> None:
        """Begin a step."""

    def sends(self, kind: Kind) -> bool:
        """Return whether this rank is the sender of a broadcast."""

    def enter(self, action: Action, part: Value) -> None:
        """Enter an exchange with this rank's part."""

    def arrive(self, action: Action) -> None:
        """Wait for a broadcast."""

    def take(self, action: Action) -> Value:
        """Return the value that an exchange brings to a pass."""

    def end_step(self) -> None:
        """End a step."""


@dataclass
class VocabularyShare:
    """A rank's share in a step. ``parts`` are values ready for exchanges, ``running`` the passes in flight."""

    plan: RankPlan
    states: StepStates
    exchanges: RankExchanges
    begin_share: Callable[[RankPlan, int, MicroBatch], SharePasses] = ShareRun
    batches: Sequence[MicroBatch] = ()
    running: dict[int, SharePasses] = field(default_factory=dict)
    parts: dict[Exchange, Value] = field(default_factory=dict)

    def begin_step(self, batches: Sequence[MicroBatch]) -> None:
        """Begin a step on these micro-batches."""
        self.batches = batches
        self.exchanges.begin_step()

    def end_step(self) -> None:
        """Wait for the exchanges in progress."""
        self.exchanges.end_step()
        assert not self.parts, "parts of exchanges were left over"

    def run(self, action: Action) -> None:
        """Run a pass of the share, or an exchange."""
        assert action.micro_batch is not None
        if action.kind in SHARE_ACTIONS:
            self.states.ready(action.stage)
            SHARE_ACTIONS[action.kind](self, action, action.micro_batch)
        elif action.kind in BROADCASTS and not self.exchanges.sends(action.kind):
            self.exchanges.arrive(action)
        else:
            self.exchanges.enter(action, self.parts.pop(exchange_of(action)))

    def put(self, kind: Kind, m: int, part: Value) -> None:
        """Store a pass's result for an exchange."""
        self.parts[kind, m] = part

    def take(self, action: Action) -> Value:
        """Return the value that an exchange brings to a pass."""
        return self.exchanges.take(action)

    def _look_up(self, action: Action, m: int) -> None:
        share = self.running[m] = self.begin_share(self.plan, self.plan.share, self.batches[m])
        self.put("REDUCE_E", m, share.look_up())

    def _logits(self, action: Action, m: int) -> None:
        self.put("REDUCE_S", m, self.running[m].logits(self.take(action)))

    def _gradients(self, action: Action, m: int) -> None:
        share, softmax = self.running[m], self.take(action)
        part = share.gradients(softmax)
        if part is not None:
            self.put("REDUCE_T", m, part)
        last = self.plan.program.stages[-1].rank == self.plan.pipeline_rank
        if last and self.plan.communicator.place_in(TP) == 0:
            self.states.loss = self.states.loss + share.loss(softmax)

    def _add_rows(self, action: Action, m: int) -> None:
        self.running.pop(m).add_rows(self.take(action))


SHARE_ACTIONS: Mapping[Kind, Callable[[VocabularyShare, Action, int], None]] = {
    "E": VocabularyShare._look_up,
    "S": VocabularyShare._logits,
    "T": VocabularyShare._gradients,
    "D": VocabularyShare._add_rows,
}
"""The function of each pass of a share."""


def vocabulary_share(plan: RankPlan, states: StepStates) -> VocabularyShare:
    """Return the rank's share of a Program whose vocabulary is spread."""
    return VocabularyShare(plan, states, Exchanges(plan))
