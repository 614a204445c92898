"""Pass the sums of steps that are validated afterwards from pipeline rank to pipeline rank."""

from dataclasses import dataclass, field

import torch

from meshwright.program.lowering.optimizer_post_validation import sender_of
from meshwright.runtime.comm.communicator import Work
from meshwright.runtime.executor.rank_plan import RankPlan
from meshwright.runtime.state.parameter_lifecycle import StepStates
from meshwright.schedules.action import Action


@dataclass
class ValidationSums:
    """One rank's sums (squares of gradients, losses); ``sent`` are sends in progress."""

    plan: RankPlan
    states: StepStates
    sent: list[tuple[Work, torch.Tensor]] = field(default_factory=list)

    def send(self, action: Action) -> None:
        """Send this rank's sums to the next rank, or those of all ranks to the previous one."""
        assert self.states.speculation is not None
        onwards = action.kind == "SEND_NORM"
        sums = self.states.sums if onwards else self.states.speculation.total
        if sums is None:  # no step to validate: the receiver ignores the sums
            sums = self._empty().zero_()
        self.sent = [(work, tensor) for work, tensor in self.sent if not work.is_completed()]
        target = self._member(self.plan.pipeline_rank + (1 if onwards else -1))
        self.sent.append((self.plan.communicator.send_sums(sums, target, str(action)), sums))

    def receive(self, action: Action) -> None:
        """Add the sums of the earlier ranks, or receive those of all ranks."""
        sender, sums = sender_of(action, self.plan.pipeline_rank), self._empty()
        assert sender is not None
        self.plan.communicator.receive_sums(sums, self._member(sender[1]), str(action)).wait()
        if action.kind == "RECV_NORM":
            assert self.states.sums is not None
            self.states.sums = sums + self.states.sums
        else:
            assert self.states.speculation is not None
            self.states.speculation.total = sums

    def end_step(self) -> None:
        """Wait until all sends have ended."""
        for work, _ in self.sent:
            work.wait()
        self.sent.clear()

    def _empty(self) -> torch.Tensor:
        return torch.empty(2, dtype=self.plan.precision.statistic, device=self.plan.communicator.device)

    def _member(self, pipeline_rank: int) -> int:
        return self.plan.program.parts.pipeline_of(self.plan.communicator.rank)[pipeline_rank]
