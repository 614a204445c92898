"""Passes of an emulated stage or vocabulary share: sleep the modelled time, meet in exchanges, count activations."""

from dataclasses import dataclass, field

import torch

from meshwright.play.clocks import FLOATS
from meshwright.play.in_flight import held_change
from meshwright.play.overlap import during_exchange, during_gather
from meshwright.program.model_states.per_unit_gather_and_reduce import NEED_PARAMETERS
from meshwright.program.program import Program
from meshwright.runtime.emulation.clock import Clock
from meshwright.runtime.emulation.communicator import EmulatedCommunicator, expect, timestamp_message
from meshwright.runtime.emulation.modelled_durations import ModelledTimes
from meshwright.runtime.executor.operator_call import MicroBatch
from meshwright.runtime.executor.rank_plan import RankPlan
from meshwright.schedules.action import Action, Kind
from meshwright.schedules.dependencies import StageChains


@dataclass
class Ledger:
    """Activation bytes of all passes in flight on a rank, each with the ledger's figure for its stage."""

    program: Program
    held: int = 0
    peak: int = 0

    def after(self, kind: Kind, stage: int) -> None:
        """Count the bytes that a pass keeps and frees."""
        kept, waits = self.program.activation_bytes[stage], self.program.weight_gradient_bytes[stage]
        self.count(held_change(kind, kept, waits))

    def count(self, change: int) -> None:
        """Add ``change`` bytes, which may be negative."""
        self.held += change
        self.peak = max(self.peak, self.held)


@dataclass
class EmulatedStages:
    """Factory of emulated stages, with the state that all of them share."""

    program: Program
    times: ModelledTimes
    clock: Clock
    communicator: EmulatedCommunicator
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.program)

    @property
    def by_unit(self) -> bool:
        """True if parameters are gathered and freed with each unit of micro-batches."""
        return self.program.parts.by_unit

    def begin(self, plan: RankPlan, stage: int, batch: MicroBatch) -> "EmulatedPasses":
        """Return a stage's passes on a micro-batch."""
        assert self.clock.action is not None
        assert self.clock.action.micro_batch is not None
        return EmulatedPasses(self, stage, self.clock.action.micro_batch)

    def begin_share(self, plan: RankPlan, share: int, batch: MicroBatch) -> "EmulatedShare":
        """Return a vocabulary share's passes on a micro-batch."""
        return EmulatedShare(self.begin(plan, share, batch))


@dataclass
class EmulatedPasses:
    """A stage on one micro-batch, in place of ``StageRun``.

    ``gone_s`` and ``back_s`` are the ends of its host copies.
    """

    stages: EmulatedStages
    stage: int
    micro_batch: int
    passed_back: bool = False
    gone_s: float = 0.0
    back_s: float = 0.0

    @property
    def ways(self) -> StageChains:
        """The order in which micro-batches pass through the stages."""
        return self.stages.program.ways

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """F: return the message for the next stage, or a zero loss."""
        if not self.ways.is_first(self.stage):
            expect(x, Action("RECV_F", self.stage, self.micro_batch))
        self.run("F")
        if self.ways.is_last(self.stage):
            return torch.zeros((), dtype=torch.float64)
        return timestamp_message(0.0, Action("RECV_F", self.stage + 1, self.micro_batch))

    def backward(self, g: torch.Tensor | None) -> torch.Tensor | None:
        """B: return the gradient message for the previous stage."""
        return self._back("B", g)

    def input_gradient(self, g: torch.Tensor | None) -> torch.Tensor | None:
        """I: return the gradient message for the previous stage."""
        self.passed_back = True
        return self._back("I", g)

    def weight_gradient(self) -> None:
        """W: only take its time."""
        self.run("W")

    def _back(self, kind: Kind, g: torch.Tensor | None) -> torch.Tensor | None:
        if g is not None:
            expect(g, Action("RECV_B", self.stage, self.micro_batch))
        self.run(kind)
        if self.ways.is_first(self.stage):
            return None
        return timestamp_message(0.0, Action("RECV_B", self.stage - 1, self.micro_batch))

    def offload(self) -> None:
        """Start a copy to the host."""
        self.gone_s = self._copy("OFFLOAD")

    def let_go(self) -> None:
        """Wait for the end of the copy to the host and free its source."""
        self.stages.clock.wait_until(self.gone_s)
        self.stages.ledger.count(-self.stages.program.offloaded_bytes[self.stage])

    def reload(self) -> None:
        """Start a copy back from the host."""
        self.stages.ledger.count(self.stages.program.offloaded_bytes[self.stage])
        self.back_s = self._copy("RELOAD")

    def _copy(self, kind: Kind) -> float:
        """Return the end of a copy that begins now, after the earlier ones of its direction."""
        clock, seconds = self.stages.clock, self.stages.times.copies[self.stage]
        start = max(clock.begin(), clock.copies.get(kind, 0.0))
        end = clock.copies[kind] = start + seconds
        clock.record(Action(kind, self.stage, self.micro_batch), start, end, "host")
        return end

    def run(self, kind: Kind) -> None:
        """Sleep for the compute of a pass, then meet and sleep for the exchanges of each of its groups."""
        clock, time = self.stages.clock, self.stages.times.passes[self.stage, kind]
        start = clock.begin(max(self._parameters(kind), self.back_s))
        clock.wait_until(start + time.compute_s + self._held_up(kind, start))
        for axes, seconds in time.exchanges:
            clock.work(seconds, self.stages.communicator.meet(axes, clock.now))
        clock.last_pass = start, clock.now - start
        clock.record(Action(kind, self.stage, self.micro_batch), start, clock.now, "compute")
        self.stages.ledger.after(kind, self.stage)

    def _parameters(self, kind: Kind) -> float:
        """Return the time at which the parameters of a pass are available.

        Only those of units are waited for; they arrive for a whole stage at once.
        """
        waits = self.stages.by_unit and kind in NEED_PARAMETERS
        return self.stages.clock.gathered.pop(self.stage, 0.0) if waits else 0.0

    def _held_up(self, kind: Kind, start: float) -> float:
        """Return the seconds that overlapped exchanges of units, or F's own gather, add to a pass."""
        times = self.stages.times
        whole, slowdown = times.passes[self.stage, kind].total_s, times.overlap_slowdown
        if self.stages.by_unit:
            left = max(0.0, self.stages.clock.data_parallel - start)
            return during_exchange(whole, left, slowdown, FLOATS) - whole
        left = self.stages.clock.gathered.pop(self.stage, 0.0) - start if kind in ("F", "E") else 0.0
        return during_gather(whole, left, slowdown, FLOATS) - whole if left > 0 else 0.0


@dataclass
class EmulatedShare:
    """A vocabulary share on one micro-batch, in place of ``ShareRun``."""

    passes: EmulatedPasses

    def look_up(self) -> None:
        """E: take its time."""
        self.passes.run("E")

    def logits(self, x: None) -> None:
        """S: take its time."""
        self.passes.run("S")

    def gradients(self, softmax: None) -> torch.Tensor | None:
        """T: take its time; return a tensor to sum if the form has a second exchange."""
        self.passes.run("T")
        return torch.zeros(()) if self.passes.ways.barriers > 1 else None

    def loss(self, softmax: None) -> torch.Tensor:
        """Return a zero loss."""
        return torch.zeros((), dtype=torch.float64)

    def add_rows(self, g: None) -> None:
        """D: take its time."""
        self.passes.run("D")
