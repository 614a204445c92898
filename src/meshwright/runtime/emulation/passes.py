"""Passes of an emulated stage or share: the modelled time, slept; its exchanges, met; its activations, counted."""

from dataclasses import dataclass, field

import torch

from meshwright.program.program import Program
from meshwright.program.runs import NEED_PARAMETERS
from meshwright.runtime.emulation.clock import Clock
from meshwright.runtime.emulation.communicator import EmulatedCommunicator, expect, stamped
from meshwright.runtime.emulation.times import ModelledTimes
from meshwright.runtime.rank_plan import RankPlan
from meshwright.runtime.visit import MicroBatch
from meshwright.schedule.action import Action, Kind
from meshwright.schedule.dependencies import Ways


@dataclass
class Ledger:
    """Bytes of the activations of all passes in flight on a rank, each with the ledger's figure for its stage."""

    program: Program
    held: int = 0
    peak: int = 0

    def after(self, kind: Kind, stage: int) -> None:
        """Count what a pass keeps and lets go."""
        kept, waits = self.program.activation_bytes[stage], self.program.weight_gradient_bytes[stage]
        changes = {"F": kept, "B": -kept, "I": waits - kept, "W": -waits, "S": kept, "T": -kept}
        self.count(changes.get(kind, 0))

    def count(self, change: int) -> None:
        """Add bytes, or take them off."""
        self.held += change
        self.peak = max(self.peak, self.held)


@dataclass
class EmulatedStages:
    """Puts emulated stages to work; what all of them share."""

    program: Program
    times: ModelledTimes
    clock: Clock
    communicator: EmulatedCommunicator
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.program)

    @property
    def by_unit(self) -> bool:
        """Parameters come and go with each unit of micro-batches."""
        return self.program.mode.by_unit

    def begin(self, plan: RankPlan, stage: int, batch: MicroBatch) -> "EmulatedPasses":
        """A stage at work on a micro-batch."""
        assert self.clock.action is not None
        assert self.clock.action.micro_batch is not None
        return EmulatedPasses(self, stage, self.clock.action.micro_batch)

    def begin_share(self, plan: RankPlan, share: int, batch: MicroBatch) -> "EmulatedShare":
        """A share at work on a micro-batch."""
        return EmulatedShare(self.begin(plan, share, batch))


@dataclass
class EmulatedPasses:
    """A stage on one micro-batch; takes the place of ``StageRun``. Copies to the host and back end at these times."""

    stages: EmulatedStages
    stage: int
    micro_batch: int
    passed_back: bool = False
    gone_s: float = 0.0
    back_s: float = 0.0

    @property
    def ways(self) -> Ways:
        """How micro-batches go through the stages."""
        return self.stages.program.ways

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """F: the result for the next stage, or a loss of nothing."""
        if not self.ways.is_first(self.stage):
            expect(x, Action("RECV_F", self.stage, self.micro_batch))
        self.run("F")
        if self.ways.is_last(self.stage):
            return torch.zeros((), dtype=torch.float64)
        return stamped(0.0, Action("RECV_F", self.stage + 1, self.micro_batch))

    def backward(self, g: torch.Tensor | None) -> torch.Tensor | None:
        """B: the gradient for the stage before."""
        return self._back("B", g)

    def input_gradient(self, g: torch.Tensor | None) -> torch.Tensor | None:
        """I: the gradient for the stage before."""
        self.passed_back = True
        return self._back("I", g)

    def weight_gradient(self) -> None:
        """W: nothing but its time."""
        self.run("W")

    def _back(self, kind: Kind, g: torch.Tensor | None) -> torch.Tensor | None:
        if g is not None:
            expect(g, Action("RECV_B", self.stage, self.micro_batch))
        self.run(kind)
        if self.ways.is_first(self.stage):
            return None
        return stamped(0.0, Action("RECV_B", self.stage - 1, self.micro_batch))

    def offload(self) -> None:
        """Begin a copy to the host."""
        self.gone_s = self._copy("OFFLOAD")

    def let_go(self) -> None:
        """Wait for its end."""
        self.stages.clock.wait_until(self.gone_s)
        self.stages.ledger.count(-self.stages.program.offloaded_bytes[self.stage])

    def reload(self) -> None:
        """Begin a copy back."""
        self.stages.ledger.count(self.stages.program.offloaded_bytes[self.stage])
        self.back_s = self._copy("RELOAD")

    def _copy(self, kind: Kind) -> float:
        """When a copy that begins now ends, behind the others of its direction."""
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
        """When the parameters are there that a pass waits for: those of a unit come a whole stage at once."""
        waits = self.stages.by_unit and kind in NEED_PARAMETERS
        return self.stages.clock.gathered.pop(self.stage, 0.0) if waits else 0.0

    def _held_up(self, kind: Kind, start: float) -> float:
        """What is added to a pass by exchanges of units beside it, or to F beside which its own parameters come."""
        if self.stages.by_unit:
            whole = self.stages.times.passes[self.stage, kind].total_s
            left = max(0.0, self.stages.clock.data_parallel - start)
            return self.stages.times.beside_exchange(whole, left) - whole
        left = self.stages.clock.gathered.pop(self.stage, 0.0) - start if kind in ("F", "E") else 0.0
        whole = self.stages.times.passes[self.stage, kind].total_s
        return self.stages.times.beside_gather(whole, left) - whole if left > 0 else 0.0


@dataclass
class EmulatedShare:
    """A share on one micro-batch; takes the place of ``ShareRun``."""

    passes: EmulatedPasses

    def look_up(self) -> None:
        """E."""
        self.passes.run("E")

    def logits(self, x: None) -> None:
        """S."""
        self.passes.run("S")

    def gradients(self, softmax: None) -> torch.Tensor | None:
        """T; something to sum up, where the form has a second exchange."""
        self.passes.run("T")
        return torch.zeros(()) if self.passes.ways.barriers > 1 else None

    def loss(self, softmax: None) -> torch.Tensor:
        """Of nothing."""
        return torch.zeros((), dtype=torch.float64)

    def add_rows(self, g: None) -> None:
        """D."""
        self.passes.run("D")
