"""Numbers of a run's optimizer that its plan does not contain, and those that replace the plan's."""

from dataclasses import dataclass

from meshwright.workload.optimizer_choice import Optimizer
from meshwright.workload.optimizers.optimizer_kind import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """``lr`` and ``clip``, the largest global norm (None: no clipping), which belong to a run.

    The others replace options of the plan's optimizer that has them, and of Muon's ``others``; None: as the plan says.
    """

    lr: float = 1e-3
    betas: tuple[float, float] | None = None
    epsilon: float | None = None
    weight_decay: float | None = None
    clip: float | None = 1.0

    def for_optimizer(self, optimizer: Optimizer, scale: str) -> Options:
        """Return all options of an optimizer; ``scale`` is Muon's where the plan writes none."""
        replaced = {"betas": self.betas, "epsilon": self.epsilon, "weight_decay": self.weight_decay}
        known = optimizer.options_of(scale)
        return known | {key: value for key, value in replaced.items() if key in known and value is not None}
