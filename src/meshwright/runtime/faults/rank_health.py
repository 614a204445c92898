"""Look for faults on one rank of a training run, together with the other ranks.

Every step a rank checks its own gradients before they are summed, takes fingerprints of replicated state, and records
how long it computed and waited. All ranks compare these every ``hash_every`` steps, before each checkpoint, and behind
a step that the first rank asks for since steps have become longer (``rank_comparison.py``). Faults of state are raised
on all ranks; slow ranks, slow links and spikes of the loss are reported by the first rank.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist

from meshwright.runtime.executor.rank import Rank
from meshwright.runtime.faults.fault import Fault, FaultError
from meshwright.runtime.faults.fault_dump import write_dump
from meshwright.runtime.faults.gradient_check import GradientCheck
from meshwright.runtime.faults.injected_faults import InjectedFaults
from meshwright.runtime.faults.loss_spikes import LossHistory
from meshwright.runtime.faults.pass_timer import PassTimer
from meshwright.runtime.faults.rank_comparison import RankComparison
from meshwright.runtime.faults.step_series import StepSeconds
from meshwright.runtime.faults.step_watch import StepWatch
from meshwright.runtime.recovery.progress_board import ProgressRow
from meshwright.runtime.state.sharded_unit import Unit
from meshwright.runtime.training.options import TrainingOptions
from meshwright.runtime.training.stop_signals import Stopping
from meshwright.schedules.action import Action

KEPT_STEPS = 256
"""Steps whose begin is remembered, and whose seconds are dumped."""
CHECK = "check for faults"


@dataclass
class RankHealth:
    """The search for faults of one rank; all ranks create it at the same time.

    ``row`` shows the parent the operations of this rank; ``timer`` measures passes on an accelerator. ``tell`` is
    called on the first rank with faults that do not end the run.
    """

    rank: Rank
    options: TrainingOptions
    store: dist.Store
    stopping: Stopping
    injected: InjectedFaults
    row: ProgressRow
    tell: Callable[[Fault], None] = lambda fault: None
    timer: PassTimer | None = None
    comparison: RankComparison = field(init=False)
    gradients: GradientCheck = field(init=False)
    losses: LossHistory = field(default_factory=LossHistory)
    watch: StepWatch = field(default_factory=StepWatch)
    recent: "deque[dict[str, Any]]" = field(default_factory=lambda: deque(maxlen=KEPT_STEPS))
    begun_s: dict[int, float] = field(default_factory=dict)
    _waited_s: float = 0.0

    def __post_init__(self) -> None:
        history = self.rank.communicator.history
        history.on_progress = self.row.note
        self.timer = PassTimer() if self.rank.communicator.device.type == "cuda" else None
        self.injected.delay_operations(history)
        self.comparison = RankComparison(self.rank, self.options.hash_every, self.injected)
        self.gradients = GradientCheck(
            self.rank.place.rank, self.comparison.peers[self.rank.place.rank], self.store, self._own_loss
        )
        for unit in self.rank.plan.trained_units:
            unit.inspect = self._inspect

    def hear(self, action: Action, word: str) -> None:
        """Hear the begin and end of an action."""
        self.stopping.hear(action, word)
        if self.injected.slows:
            self.injected.hear(action, word)
        if self.timer is not None:
            self.timer.hear(action, word)

    def begin_step(self, step: int) -> None:
        """Begin a step."""
        self.begun_s[step] = monotonic()
        self.begun_s.pop(step - KEPT_STEPS, None)
        self.injected.before_step(step, self.comparison.state.flip_bit)
        self.gradients.begin_step(step)
        history = self.rank.communicator.history
        self._waited_s = history.waited_s
        history.least_s.clear()

    def end_step(self, step: int, seconds: float) -> StepSeconds:
        """Record a step that took so many seconds and return how they were spent."""
        waited_s = self.rank.communicator.history.waited_s - self._waited_s
        busy_s = max(0.0, seconds - waited_s)
        if self.timer is not None:
            busy_s = min(seconds, self.timer.seconds())
            waited_s = seconds - busy_s
        spent = StepSeconds(busy_s, waited_s)
        self.recent.append({"step": step, "busy_s": spent.busy_s, "waited_s": spent.waited_s})
        self.gradients.end_step(seconds)
        self.comparison.add(step, spent)
        if self.comparison.first and self.watch.add(seconds):
            self.stopping.wishes.add(CHECK)
        return spent

    def loss(self, step: int, loss: float) -> float:
        """Return the loss of a step with its injected spike, and report a spike."""
        loss = self.injected.loss(step, loss)
        found = self.losses.add(step, loss)
        if found is not None and self.comparison.first:
            self.tell(self._timed(found))
        return loss

    def due(self, done: int, *, saves: bool) -> bool:
        """Return whether all ranks compare behind so many steps. ``saves``: a checkpoint follows."""
        if not self.comparison.links:
            return False
        return saves or done % self.options.hash_every == 0 or self.stopping.also_agreed(CHECK)

    def compare(self, step: int) -> None:
        """Compare with all ranks behind a step; every rank calls it. Raises FaultError on all if copies differ."""
        wished = self.stopping.also_agreed(CHECK)
        self.stopping.wishes.discard(CHECK)
        try:
            found = self.comparison.compare(step, suspected=wished)
        except FaultError as error:
            raise FaultError(map(self._timed, error.faults)) from None
        for fault in found if self.comparison.first else ():
            self.tell(self._timed(fault))
        self.watch.looked(found=bool(found))

    def dump(self, reason: str) -> None:
        """Write the last steps and operations of this rank to the output folder."""
        history = self.rank.communicator.history
        data = {"reason": reason, "steps": list(self.recent), "collectives": history.to_json()}
        write_dump(self.options.output, self.rank.place.rank, data)

    def _timed(self, fault: Fault) -> Fault:
        """Return a fault with the seconds since the begin of its step."""
        began = self.begun_s.get(fault.step)
        return fault if began is None else replace(fault, detected_s=monotonic() - began)

    def _inspect(self, unit: Unit, parts: Sequence[torch.Tensor]) -> None:
        self.injected.change_gradients(parts)
        try:
            self.gradients(unit, parts)
        except FaultError as error:
            raise FaultError(map(self._timed, error.faults)) from None

    def _own_loss(self) -> float | None:
        """Return this rank's part of the step's loss; None if it computes none."""
        return float(self.rank.interpreter.states.loss) or None
