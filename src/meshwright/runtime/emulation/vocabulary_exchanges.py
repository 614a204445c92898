"""Exchanges of a spread vocabulary on an emulated rank: times in place of tensors, on the same communicators.

A sum is an all-reduce (maximum) of the times at which ranks enter it; a broadcast carries the time at which its
sender's part ends. Each kind is a channel that carries one exchange at a time. An exchange proceeds on its own once it
is entered; a rank waits on the clock where it takes a sum, and where its list has another rank's broadcast. Stamps
carry the micro-batch, so an exchange of another one is an error that names both.
"""

from collections import deque
from dataclasses import dataclass

import torch

from meshwright.program.pipeline_messages.all_rank_exchanges import exchange_of, root
from meshwright.runtime.comm.communicator import Work
from meshwright.runtime.emulation.passes import EmulatedStages
from meshwright.runtime.executor.rank_plan import RankPlan
from meshwright.runtime.kernels.kernel import Value
from meshwright.runtime.pipeline_vocabulary.background_queue import Made
from meshwright.runtime.pipeline_vocabulary.share_exchanges import BRINGS, Exchanges
from meshwright.schedules.action import BROADCASTS, Action, Kind


@dataclass
class EmulatedExchange:
    """An exchange in progress: ``stamp`` is (time, micro-batch, −micro-batch), the latest or the sender's."""

    exchanges: "EmulatedExchanges"
    action: Action
    stamp: torch.Tensor
    work: Work | None
    made: Made
    waits: bool

    def result(self) -> Made:
        """Return the exchange's result after it has ended on the clock."""
        end = self.exchanges.end_of(self)
        if self.waits:
            self.exchanges.stages.clock.wait_until(end)
        return self.made


class EmulatedExchanges(Exchanges):
    """All exchanges of one emulated rank; ``channels`` holds the time at which each kind's channel is free."""

    def __init__(self, plan: RankPlan, stages: EmulatedStages) -> None:
        super().__init__(plan)
        self.stages = stages
        self.channels: dict[Kind, float] = {}
        self.ends: dict[Action, float] = {}
        self.under_way: dict[Kind, deque[EmulatedExchange]] = {kind: deque() for kind in BRINGS}

    def enter(self, action: Action, part: Value) -> None:
        """Enter an exchange now; a fraction of it occupies this rank's compute."""
        self.stages.clock.begin()
        super().enter(action, part)
        self._keep(action)

    def arrive(self, action: Action) -> None:
        """Wait for a broadcast."""
        super().arrive(action)
        self._keep(action)

    def end_of(self, meeting: EmulatedExchange) -> float:
        """Return the end of an exchange, after ending the earlier ones of its kind."""
        kind = meeting.action.kind
        while meeting.action not in self.ends:
            self._ended(self.under_way[kind].popleft())
        return self.ends[meeting.action]

    def _begin(self, action: Action, part: Value) -> None:
        clock, communicator, kind = self.stages.clock, self.stages.communicator, action.kind
        items = self.plan.program.collectives[action.stage, kind]
        axes = next(item.axes for item in items if "pp" in item.axes)
        own = self.sends(kind)
        stamp = _stamp(self._following(action, clock.now) if own else clock.now, action)
        if kind in BROADCASTS:
            whose = self.peers[root(kind, self.placement)]
            work: Work | None = communicator.broadcast(stamp, axes, str(action), kind, whose)
        else:
            work = communicator.latest(stamp, axes, str(action), kind)
        meeting = EmulatedExchange(self, action, stamp, work, dict.fromkeys(self.brings(kind)), waits=not own)
        self.pending[exchange_of(action)] = meeting
        self.under_way[kind].append(meeting)

    def _following(self, action: Action, moment: float) -> float:
        """Return the end of an exchange that could begin at ``moment``, on a channel that carries one at a time."""
        start = max(self.channels.get(action.kind, 0.0), moment)
        end = self.channels[action.kind] = start + self._seconds(action)
        return end

    def _ended(self, meeting: EmulatedExchange) -> None:
        action, seconds = meeting.action, self._seconds(meeting.action)
        if meeting.work is not None:
            meeting.work.wait()
        moment, *numbers = meeting.stamp.tolist()
        expected = _stamp(0.0, action).tolist()[1:]
        assert numbers == expected, f"{action}: others exchange {numbers}, expected {expected}"
        end = moment if action.kind in BROADCASTS else self._following(action, moment)
        self.ends[action] = end
        self.stages.clock.record(action, end - seconds, end, "exchange")

    def _keep(self, action: Action) -> None:
        """Occupy the compute stream for the exchange's share of it."""
        clock = self.stages.clock
        clock.wait_until(clock.now + self.stages.times.exchange_occupancy * self._seconds(action))

    def _seconds(self, action: Action) -> float:
        return sum(self.stages.times.exchanges[action.stage, action.kind])


def _stamp(moment: float, action: Action) -> torch.Tensor:
    assert action.micro_batch is not None
    return torch.tensor([moment, action.micro_batch, -action.micro_batch], dtype=torch.float64)
