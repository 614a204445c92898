"""The passes of a rank's share, and what they and the stages hand to each other through exchanges of all ranks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from meshwright.program.meetings import Exchange, exchange_of
from meshwright.runtime.kernels.kernel import Value
from meshwright.runtime.rank_plan import RankPlan
from meshwright.runtime.step_states import StepStates
from meshwright.runtime.visit import MicroBatch
from meshwright.runtime.vocabulary.exchanges import Exchanges
from meshwright.runtime.vocabulary.share_run import ShareRun
from meshwright.schedule.action import BROADCASTS, Action, Kind

TP = ("tp",)


class SharePasses(Protocol):
    """A share at work on one micro-batch, from E until D."""

    def look_up(self) -> Value:
        """E: what REDUCE_E sums up."""

    def logits(self, x: Value) -> Value:
        """S: what REDUCE_S brings together."""

    def gradients(self, softmax: Value) -> Value | None:
        """T: what REDUCE_T sums up, where there is one."""

    def loss(self, softmax: Value) -> torch.Tensor:
        """The loss, once the softmax is exchanged."""

    def add_rows(self, g: Value) -> None:
        """D: gradients of rows."""


class RankExchanges(Protocol):
    """What one rank exchanges with all others; see ``Exchanges``."""

    def begin_step(self) -> None:
        """A step begins."""

    def sends(self, kind: Kind) -> bool:
        """Whether this rank is the one that broadcasts."""

    def enter(self, action: Action, part: Value) -> None:
        """Hand over a part."""

    def arrive(self, action: Action) -> None:
        """Wait for a broadcast."""

    def take(self, action: Action) -> Value:
        """What is brought to a pass."""

    def end_step(self) -> None:
        """A step has ended."""


@dataclass
class SpreadVocabulary:
    """A rank's share in a step. ``parts`` are what passes have made for exchanges, ``running`` the shares at work."""

    plan: RankPlan
    states: StepStates
    exchanges: RankExchanges
    begin_share: Callable[[RankPlan, int, MicroBatch], SharePasses] = ShareRun
    batches: Sequence[MicroBatch] = ()
    running: dict[int, SharePasses] = field(default_factory=dict)
    parts: dict[Exchange, Value] = field(default_factory=dict)

    def begin_step(self, batches: Sequence[MicroBatch]) -> None:
        """A step on these micro-batches."""
        self.batches = batches
        self.exchanges.begin_step()

    def end_step(self) -> None:
        """Wait for what is under way."""
        self.exchanges.end_step()
        assert not self.parts, "parts of exchanges were left over"

    def run(self, action: Action) -> None:
        """A pass of the share, or an exchange."""
        assert action.micro_batch is not None
        if action.kind in SHARE_ACTIONS:
            self.states.ready(action.stage)
            SHARE_ACTIONS[action.kind](self, action, action.micro_batch)
        elif action.kind in BROADCASTS and not self.exchanges.sends(action.kind):
            self.exchanges.arrive(action)
        else:
            self.exchanges.enter(action, self.parts.pop(exchange_of(action)))

    def put(self, kind: Kind, m: int, part: Value) -> None:
        """What a pass has made for an exchange."""
        self.parts[kind, m] = part

    def take(self, action: Action) -> Value:
        """What an exchange brings to a pass."""
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


SHARE_ACTIONS: Mapping[Kind, Callable[[SpreadVocabulary, Action, int], None]] = {
    "E": SpreadVocabulary._look_up,
    "S": SpreadVocabulary._logits,
    "T": SpreadVocabulary._gradients,
    "D": SpreadVocabulary._add_rows,
}
"""How each pass of a share is executed."""


def spread_vocabulary(plan: RankPlan, states: StepStates) -> SpreadVocabulary:
    """The rank's share of a Program whose vocabulary is spread."""
    return SpreadVocabulary(plan, states, Exchanges(plan))
