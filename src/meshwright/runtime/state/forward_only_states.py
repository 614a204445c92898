"""A rank's parameters in a step without backward passes: at θ + εz, at θ − εz, and updated.

PERTURB moves them to the next of the two points, in place: θ ← θ + εz, then θ ← θ − 2εz. STEP moves them back and adds
the update in one pass: with g = (L(θ + εz) − L(θ − εz)) / 2ε,

    θ ← θ + εz,    θ ← θ − η(g·z + λθ)

Every rank does all of this in this order, whichever of the losses its passes compute, so that all replicas keep the
same bits. Weight decay λ excludes vectors. Both losses are summed in fp64 over all ranks: sums of fp32 numbers are
exact there, in any order, so that as many bits agree if the losses are computed by different ranks.
"""

from dataclasses import dataclass, field
from typing import cast

import torch

from meshwright.model.named_tensors import is_matrix
from meshwright.program.lowering.step_collectives import LOSS_BYTES
from meshwright.runtime.state.noise import noise_key
from meshwright.runtime.state.parameter_lifecycle import StepStates
from meshwright.runtime.state.parameter_update import refresh
from meshwright.runtime.state.perturbation import Change, change_by_noise
from meshwright.runtime.state.post_validation import StepResult
from meshwright.schedules.action import Action
from meshwright.schedules.forward_only_lists import is_second_half
from meshwright.workload.optimizer_choice import Optimizer

POINTS = (1.0, -2.0)
"""Multiples of εz that move the parameters to each of the points, from the one before."""


@dataclass(frozen=True, slots=True)
class TwoLosses:
    """The losses of a step at θ + εz and θ − εz, and the gradient along z that they estimate."""

    plus: float
    minus: float
    gradient: float


@dataclass
class ForwardOnlyStates(StepStates):
    """Parameters of a rank in a step with two losses. ``seed`` is that of the noise.

    ``point``: 0 at θ, 1 at θ + εz, 2 at θ − εz; ``losses`` are those of this rank's passes at either point.
    """

    seed: int = 0
    point: int = 0
    losses: list[torch.Tensor | float] = field(default_factory=lambda: [0.0, 0.0])
    found: TwoLosses | None = None

    @property
    def side(self) -> int:
        """The loss that passes compute where the parameters are: 0 at θ + εz, 1 at θ − εz."""
        return self.point - 1

    @property
    def _goes_on(self) -> bool:
        """True if this rank's passes compute the second loss alone."""
        grid = self.plan.program.parts.only.grid
        place = grid.coordinates(self.plan.communicator.rank)["dp_replicate"]
        second = is_second_half(place, int(grid.sizes["dp_replicate"]))
        return self._optimizer.splits_perturbations and second

    def begin_step(self, lr_factor: float) -> None:
        """Reset the previous step's losses."""
        super().begin_step(lr_factor)
        self.losses, self.found = [0.0, 0.0], None

    def perturb(self, action: Action) -> None:
        """Move the parameters to the next point, or to the one at which this rank's passes compute a loss."""
        self._take_loss()
        moves = len(POINTS) if self.point == 0 and self._goes_on else 1
        for _ in range(moves):
            self._move()

    def reduce_norm(self, action: Action) -> None:
        """Sum both losses over all ranks."""
        self._take_loss()
        device = self.plan.communicator.device
        self.sums = torch.stack(
            [torch.zeros((), dtype=torch.float64, device=device) + loss for loss in self.losses]
        )
        for item in self.plan.program.collectives.get((None, "NORM"), ()):
            self.plan.communicator.start(item, self.sums, LOSS_BYTES // 2).wait()

    def step(self, action: Action) -> None:
        """Move the parameters back and update them."""
        if self.sums is None:
            self.reduce_norm(action)
        assert self.sums is not None
        assert self.point == len(POINTS), "the parameters are not at the second point"
        plus, minus = self.sums.tolist()
        self.found = TwoLosses(plus, minus, (plus - minus) / (2 * self._optimizer.epsilon))
        self.before_step()
        self._known(StepResult((plus + minus) / 2, abs(self.found.gradient)))
        self._update(self.found.gradient)
        self._move_corrections()
        refresh(self.plan)

    @property
    def _optimizer(self) -> Optimizer:
        return self.plan.program.stack.optimizer

    def _take_loss(self) -> None:
        """Count the loss of the passes since the parameters were moved."""
        if self.point:
            side = self.side
            self.losses[side] = self.losses[side] + self.loss + self.plan.tally.loss
        self.loss = self.plan.tally.loss = 0.0

    def _move(self) -> None:
        if self.point == len(POINTS):
            return
        by = POINTS[self.point] * self._optimizer.epsilon
        self.point += 1
        self._change(lambda name, values, z: values + z * by)
        refresh(self.plan)

    def _update(self, gradient: float) -> None:
        options = self.optimizer.options
        epsilon, lr = self._optimizer.epsilon, options.lr * self.lr_factor
        decay = cast(float, options.for_optimizer(self._optimizer, "")["weight_decay"])
        shapes = {t.name: t.whole_shape for unit in self.plan.all_units for t in unit.layout.tensors}

        def changed(name: str, values: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            values = values + z * epsilon
            step = z * gradient
            if decay and is_matrix(name, shapes[name]):
                step = step + values * decay
            return values - step * lr

        self._change(changed)
        self.point = 0
        self.optimizer.step += 1

    def _change(self, change: Change) -> None:
        step, wide = self.optimizer.step, self.plan.precision.statistic
        for unit in self.plan.trained_units:
            change_by_noise(unit, lambda name: noise_key(self.seed, step, name), change, wide)
