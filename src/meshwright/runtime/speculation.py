"""An optimizer step that is taken on what is known, and undone where more is known: ``program/step_validation.py``.

With the sums so far a rank takes its step if they do not forbid it, after it has copied what that overwrites. With all
sums it sees whether they have asked for clipping, or are not finite. If so the copies are put back, and the step is
taken from the same gradients with the norm that is now known: what waiting for it would have given, and not the inverse
of an update, which rounding makes another. The last rank has all sums when it steps: it copies nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

import torch

from meshwright.runtime.optimizer import Copies, Optimizer
from meshwright.runtime.rank_plan import RankPlan


@dataclass(frozen=True)
class StepResult:
    """The loss of the whole batch (mean over its labels) and the norm of all gradients before clipping."""

    loss: float
    norm: float

    @classmethod
    def of(cls, sums: torch.Tensor) -> "StepResult":
        """From the sums of losses and of squares: (squares, loss)."""
        return cls(sums[1].item(), sums[0].sqrt().item())

    @property
    def finite(self) -> bool:
        """Neither of them is infinite or no number."""
        return isfinite(self.loss) and isfinite(self.norm)


@dataclass
class Pending:
    """A step that is to be validated: its learning rate's factor, its gradients, copies of what it has overwritten.

    ``taken``: the optimizer has stepped.
    """

    lr_factor: float
    gradients: dict[str, torch.Tensor]
    taken: bool = False
    copies: Copies | None = None


@dataclass
class Speculation:
    """Optimizer steps of one rank before all is known of them. ``total`` are the sums of all ranks, once known."""

    plan: RankPlan
    optimizer: Optimizer
    pending: Pending | None = None
    total: torch.Tensor | None = None

    @property
    def last(self) -> bool:
        """Whether this rank's sums are those of all."""
        return self.plan.pipeline_rank + 1 == self.plan.program.pipeline_ranks

    def take(self, sums: torch.Tensor, lr_factor: float) -> None:
        """Step on the sums of this rank and those before it, unless they already say that more must be known."""
        assert self.pending is None, "the step before was not validated"
        so_far, units = StepResult.of(sums), self.plan.all_units
        self.pending = Pending(lr_factor, {u.name: u.reduced for u in units if u.reduced is not None})
        self.total = sums if self.last else None
        if so_far.finite and (self.last or self._unclipped(so_far)):
            self.pending.copies = None if self.last else self.optimizer.copies()
            self.pending.taken = True
            self.optimizer.update(so_far.norm, lr_factor)
        for unit in units:
            unit.reduced = None

    def validate(self, known: Callable[[StepResult], None]) -> bool:
        """Whether the step before was wrong on any rank; then this rank's is right now. False where there was none.

        ``known`` is told of the step before it is taken again, and may refuse it.
        """
        pending, self.pending = self.pending, None
        if pending is None:
            return False
        assert self.total is not None
        result, self.total = StepResult.of(self.total), None
        right = result.finite and self._unclipped(result)
        if not right and pending.copies is not None:
            self.optimizer.restore(pending.copies)
            pending.taken = False
        known(result)
        if not pending.taken:
            for unit in self.plan.all_units:
                unit.reduced = pending.gradients[unit.name]
            self.optimizer.update(result.norm, pending.lr_factor)
        return not right

    def _unclipped(self, result: StepResult) -> bool:
        return self.optimizer.clipping(result.norm) == 1.0
