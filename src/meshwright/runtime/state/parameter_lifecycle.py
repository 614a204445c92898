"""A rank's operations on parameters and gradients within a step: gather, free, reduce, norm, optimizer.

What the Program overlaps with compute is started by its action and ended when it is first needed. If steps are
validated after they are taken, ``speculation`` takes them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from meshwright.program.lowering.step_collectives import (
    LISTED,
    NORM_BYTES,
    PRODUCTS,
    gathers_stages,
    late_gathers,
)
from meshwright.program.synchronisation.islands import ISLAND
from meshwright.runtime.comm.routing_count_exchange import sum_router_counts
from meshwright.runtime.executor.block_passes import PendingExchange
from meshwright.runtime.executor.rank_plan import RankPlan, dealt
from meshwright.runtime.state.base_change_update import BaseChanges
from meshwright.runtime.state.gradient_combination import GradientCombination
from meshwright.runtime.state.gradient_reduction import GradientReductions
from meshwright.runtime.state.optimizer import Optimizer
from meshwright.runtime.state.parameter_update import refresh
from meshwright.runtime.state.post_validation import PostValidation, StepResult
from meshwright.runtime.synchronisation.arrivals import StepParticipation
from meshwright.runtime.synchronisation.rank_exchange_steps import Synchroniser
from meshwright.schedules.action import Action

WORLD = ("world",)


def free_gathered_in_passes(plan: RankPlan, stage: int) -> None:
    """Drop what forward passes of a stage gathered for as long as a micro-batch is in flight."""
    for unit in plan.units_of(stage):
        if unit.communicator.part.mode.gather == "per-micro-batch":
            unit.free()


@dataclass
class StepStates:
    """Parameter and gradient state of a rank during a step; ``gathering`` holds gathers in progress, by stage.

    ``before_step`` is called with the reduced gradients before the optimizer's step. ``after_norm`` is called for
    every step as soon as its norm is known, and may refuse it: then it is not taken, or undone. ``result`` is that of
    the last known step.
    """

    plan: RankPlan
    optimizer: Optimizer
    before_step: Callable[[], None] = lambda: None
    after_norm: Callable[[StepResult], None] = lambda result: None
    loss: torch.Tensor | float = 0.0
    sums: torch.Tensor | None = None
    result: StepResult | None = None
    speculation: PostValidation | None = field(init=False)
    lr_factor: float = 1.0
    gathering: dict[int, list[PendingExchange]] = field(default_factory=dict)
    reductions: GradientReductions = field(init=False)
    changes: BaseChanges = field(init=False)
    synchroniser: Synchroniser = field(init=False)
    combination: GradientCombination = field(init=False)
    arrivals: StepParticipation = field(init=False)

    def __post_init__(self) -> None:
        self.reductions = GradientReductions(self.plan)
        self.changes = BaseChanges(self.plan)
        self.synchroniser = Synchroniser(self.plan, self.optimizer)
        participation = self.synchroniser.participation
        self.combination = GradientCombination(self.plan, self.optimizer, participation)
        place = self.plan.program.parts[0].grid.coordinates(self.plan.communicator.rank)
        own = place["dp_replicate"], place["dp_shard"]
        self.arrivals = StepParticipation(self.plan.program, own, participation)
        overlap = self.plan.program.steps_overlap
        self.speculation = PostValidation(self.plan, self.optimizer) if overlap else None
        self.renew()

    @property
    def settled(self) -> bool:
        """True if parameters and moments are final: no step is still to be validated."""
        return self.speculation is None or self.speculation.pending is None

    def renew(self) -> None:
        """Gather again what lives from step to step, at the start and after shards were loaded."""
        self._end_gathers()
        for unit in self.plan.offloaded_units:
            unit.settle()
        refresh(self.plan)
        for action in late_gathers(self.plan.program.lists[self.plan.pipeline_rank]):
            self.gather(action)
            self.ready(action.stage)

    def begin_step(self, lr_factor: float) -> None:
        """Reset the previous step's loss and norm."""
        self.loss, self.sums, self.result, self.lr_factor = 0.0, None, None, lr_factor
        self.plan.tally.begin_step()

    def gather(self, action: Action) -> None:
        """Start to gather the parameters of a stage."""
        assert action.stage is not None
        items = self.plan.program.collectives[action.stage, "GATHER"]
        every = self.plan.units_of(action.stage)
        units = [unit for unit in every if gathers_stages(unit.communicator.part)]
        self.gathering[action.stage] = [
            PendingExchange(unit.gather(own)).begin() for unit, own in dealt(units, items)
        ]

    def ready(self, stage: int | None) -> None:
        """End the gathers that a stage needs; with a table shared on this rank, all of them."""
        for of in [of for of in self.gathering if self.plan.shares_table or of == stage]:
            for exchange in self.gathering.pop(of):
                exchange.finish()

    def free(self, action: Action) -> None:
        """Drop the parameters of a stage that are whole only during a step, or a unit of micro-batches."""
        assert action.stage is not None
        for unit in self.plan.units_of(action.stage):
            if unit.communicator.part.mode.gather in LISTED:
                unit.free()

    def reduce(self, action: Action) -> None:
        """Start to reduce the gradients of a stage, of the replicas that count."""
        self.arrivals.settle(self.optimizer.step)
        self.reductions.begin(action)

    def reduce_norm(self, action: Action) -> None:
        """Sum the squares of gradients and the losses over all ranks that the Program names."""
        self.arrivals.settle(self.optimizer.step)
        self.reductions.end()
        items = self.plan.program.collectives.get((None, "NORM"), ())
        for item in items:
            if item.what == PRODUCTS:
                self.combination.finish(item)
        squares = self.optimizer.squares()
        loss, weight = squares.new_tensor(0.0), self.arrivals.own_weight
        if weight:
            loss = loss + weight * (self.loss + self.plan.tally.loss)
        self.sums = torch.stack([squares, loss])
        for item in items:
            if item.what != PRODUCTS:
                self.plan.communicator.start(item, self.sums, NORM_BYTES // 2).wait()

    def perturb(self, action: Action) -> None:
        """Raise AssertionError: steps with backward passes perturb nothing."""
        raise AssertionError(action)

    def step(self, action: Action) -> None:
        """Take the optimizer's step on this rank's shards."""
        if self.sums is None:
            self.reduce_norm(action)
        assert self.sums is not None
        self.before_step()
        if self.speculation is not None:
            self.speculation.take(self.sums, self.lr_factor)
        else:
            result = StepResult.of(self.sums)
            self._known(result)
            before = self.changes.adapters()
            self.optimizer.update(result.norm, self.lr_factor)
            self.changes.add(before)
        self._move_corrections()
        refresh(self.plan)

    def _move_corrections(self) -> None:
        """Move the routers' corrections by the choices of all ranks.

        These include other pipeline ranks with the same layers.
        """
        if self.plan.tally.speed:
            axes = ISLAND if self.plan.program.loose else WORLD
            numbers = self.plan.tally.table().to(self.plan.communicator.device)
            self.plan.tally.move(self.plan.buffers, sum_router_counts(self.plan.communicator, numbers, axes))

    def validate(self, action: Action) -> bool:
        """Correct the previous step if needed, and return whether it was wrong.

        If it was, all work on its parameters is void.
        """
        assert self.speculation is not None
        wrong = self.speculation.validate(self._known)
        if wrong:
            self.loss = 0.0
            self._end_gathers()
            for unit in self.plan.all_units:
                unit.free()
            self.renew()
        return wrong

    def _known(self, result: StepResult) -> None:
        self.after_norm(result)
        self.result = result

    def _end_gathers(self) -> None:
        for stage in tuple(self.gathering):
            self.ready(stage)
