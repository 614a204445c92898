"""Take an optimizer step on partial sums, and undo it if the full sums require that.

See ``program/lowering/optimizer_post_validation.py``. With the sums so far a rank takes its step unless they already
forbid it, after copying what the step overwrites. With all sums it checks whether they require clipping, or are not
finite. If so the copies are restored, and the step is taken from the same gradients with the full norm. This gives
exactly what waiting would have given; inverting the update would not, because of rounding. The last pipeline rank has
all sums when it steps, and copies nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

import torch

from meshwright.runtime.executor.rank_plan import RankPlan
from meshwright.runtime.state.optimizer import Copies, Optimizer


@dataclass(frozen=True)
class StepResult:
    """The loss of the whole batch (mean over its labels) and the norm of all gradients before clipping."""

    loss: float
    norm: float

    @classmethod
    def of(cls, sums: torch.Tensor) -> "StepResult":
        """Create the result from summed squares and losses: (squares, loss)."""
        return cls(sums[1].item(), sums[0].sqrt().item())

    @property
    def finite(self) -> bool:
        """True if loss and norm are finite."""
        return isfinite(self.loss) and isfinite(self.norm)


@dataclass
class UnvalidatedStep:
    """A step still to be validated: its learning rate's factor, its gradients, copies of what it has overwritten.

    ``taken``: the optimizer has stepped.
    """

    lr_factor: float
    gradients: dict[str, torch.Tensor]
    taken: bool = False
    copies: Copies | None = None


@dataclass
class PostValidation:
    """Optimizer steps of one rank on partial sums. ``total`` are the sums of all ranks, once known."""

    plan: RankPlan
    optimizer: Optimizer
    pending: UnvalidatedStep | None = None
    total: torch.Tensor | None = None

    @property
    def last(self) -> bool:
        """True if this rank's sums already include all ranks."""
        return self.plan.pipeline_rank + 1 == self.plan.program.pipeline_ranks

    def take(self, sums: torch.Tensor, lr_factor: float) -> None:
        """Take a step on the sums of this rank and those before it, unless these sums already forbid it."""
        assert self.pending is None, "the step before was not validated"
        so_far, units = StepResult.of(sums), self.plan.trained_units
        self.pending = UnvalidatedStep(lr_factor, {u.name: u.reduced for u in units if u.reduced is not None})
        self.total = sums if self.last else None
        if so_far.finite and (self.last or self._unclipped(so_far)):
            self.pending.copies = None if self.last else self.optimizer.copies()
            self.pending.taken = True
            self.optimizer.update(so_far.norm, lr_factor)
        for unit in units:
            unit.reduced = None

    def validate(self, known: Callable[[StepResult], None]) -> bool:
        """Return whether the previous step was wrong on any rank, and correct this rank's. False if there was none.

        ``known`` is called with its result before the step is taken again, and may refuse it.
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
            for unit in self.plan.trained_units:
                unit.reduced = pending.gradients[unit.name]
            self.optimizer.update(result.norm, pending.lr_factor)
        return not right

    def _unclipped(self, result: StepResult) -> bool:
        return self.optimizer.clipping(result.norm) == 1.0
