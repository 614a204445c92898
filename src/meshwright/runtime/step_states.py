"""What a rank does to its parameters and gradients within a step: gather, free, reduce, norm, optimizer.

What the Program runs beside compute is begun by its action and ended by the first one that needs it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from meshwright.program.program import Program
from meshwright.program.step import NORM_BYTES
from meshwright.runtime.block_run import Exchanging
from meshwright.runtime.optimizer import Optimizer
from meshwright.runtime.rank_plan import TABLE, RankPlan
from meshwright.schedule.action import Action


@dataclass
class StepStates:
    """Gathers and reductions under way, these with their number of operations.

    ``after_norm`` sees the reduced gradients before the optimizer does.
    """

    plan: RankPlan
    optimizer: Optimizer
    after_norm: Callable[[], None] = lambda: None
    loss: torch.Tensor | float = 0.0
    norm: float | None = None
    lr_factor: float = 1.0
    gathering: dict[int, list[Exchanging]] = field(default_factory=dict)
    reducing: list[tuple[Exchanging, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Bring what lives from step to step up to date with the shards: at the start, and when they were loaded."""
        for stage in tuple(self.gathering):
            self.ready(stage)
        self._refresh()
        for action in _late_gathers(self.plan.program, self.plan.pipeline_rank):
            self.gather(action)
            self.ready(action.stage)

    def begin_step(self, lr_factor: float) -> None:
        """Forget the last step's loss and norm."""
        self.loss, self.norm, self.lr_factor = 0.0, None, lr_factor

    def gather(self, action: Action) -> None:
        """Begin to make the parameters of a stage whole."""
        assert action.stage is not None
        items = self.plan.program.collectives[action.stage, "GATHER"]
        self.gathering[action.stage] = [
            Exchanging(unit.gather(items)).begin() for unit in self.plan.units_of(action.stage)
        ]

    def ready(self, stage: int | None) -> None:
        """End the gathers that a stage needs; with a table shared on this rank, all of them."""
        for of in [of for of in self.gathering if self.plan.shared or of == stage]:
            for exchange in self.gathering.pop(of):
                exchange.finish()

    def free(self, action: Action) -> None:
        """Drop the gathered parameters of a stage."""
        assert action.stage is not None
        for unit in self.plan.units_of(action.stage):
            unit.free()

    def reduce(self, action: Action) -> None:
        """Begin to sum up the gradients of a stage."""
        assert action.stage is not None
        if self.plan.program.mode.by_unit:
            self._end_reductions()  # gradients of one stage at a time are on their way
        items = self.plan.program.collectives[action.stage, "REDUCE"]
        units = self.plan.units_of(action.stage)
        self.reducing += [(Exchanging(unit.reduce(items)).begin(), len(items)) for unit in units]

    def after_pass(self) -> None:
        """Begin the next operation of reductions that have several: left to their end, none would run beside passes.

        After which pass it begins does not depend on timing, so that all ranks begin their operations in one order.
        """
        for exchange, operations in self.reducing:
            if exchange.begun < operations:
                exchange.go_on()

    def reduce_mirrored(self, action: Action) -> None:
        """Sum up the reduced gradients of a stage with those of the rank that has its layers too."""
        self._reduced()
        assert action.stage is not None
        items = self.plan.program.collectives[action.stage, action.kind]
        units = self.plan.units_of(action.stage)
        each = len(items) // len(units)
        for number, unit in enumerate(units):
            assert unit.reduced is not None
            for item in items[number * each : (number + 1) * each]:
                self.plan.communicator.start(item, unit.reduced, unit.gradient_width).wait()

    def reduce_tied(self, action: Action) -> None:
        """Sum up the gradient of a table that another stage has too."""
        self._reduced()
        (item,) = self.plan.program.collectives[None, "REDUCE_TIED"]
        unit = self.plan.unit_of[TABLE]
        part = unit.tied()
        self.plan.communicator.start(item, part, unit.gradient_width).wait()
        unit.set_tied(part)

    def reduce_norm(self, action: Action) -> None:
        """The norm of all gradients, and the loss of the whole batch."""
        self._reduced()
        squares = self.optimizer.squares()
        sums = torch.stack([squares, squares.new_tensor(0.0) + self.loss])
        for item in self.plan.program.collectives.get((None, "NORM"), ()):
            self.plan.communicator.start(item, sums, NORM_BYTES // 2).wait()
        self.norm, self.loss = sums[0].sqrt().item(), sums[1].item()

    def step(self, action: Action) -> None:
        """The optimizer's step on this rank's shards."""
        if self.norm is None:
            self.reduce_norm(action)
        assert self.norm is not None
        self.after_norm()
        self.optimizer.update(self.norm, self.lr_factor)
        self._refresh()

    def _reduced(self) -> None:
        """End all reductions; gradients that no other rank shares are reduced as they are."""
        self._end_reductions()
        for unit in self.plan.all_units:
            if unit.reduced is None:
                Exchanging(unit.reduce(())).begin().finish()

    def _end_reductions(self) -> None:
        for exchange, _ in self.reducing:
            exchange.finish()
        self.reducing.clear()

    def _refresh(self) -> None:
        """Bring what this rank holds alone up to date with the optimizer's parameters."""
        for unit in self.plan.all_units:
            if unit.layout.parts == 1:
                Exchanging(unit.gather(())).begin().finish()


def _late_gathers(program: Program, rank: int) -> list[Action]:
    """GATHER actions at the end of a list, which serve the next step: before the first one they are due too."""
    actions = program.lists[rank]
    return [action for action in actions[actions.index(Action("STEP")) :] if action.kind == "GATHER"]
