"""Gradients of a rank summed up over the ranks that share them: begun by an action, ended by who needs them."""

from dataclasses import dataclass, field

from meshwright.runtime.block_run import Exchanging
from meshwright.runtime.rank_plan import TABLE, RankPlan
from meshwright.schedule.action import Action


@dataclass
class Reductions:
    """Reductions under way, each with its number of operations."""

    plan: RankPlan
    begun: list[tuple[Exchanging, int]] = field(default_factory=list)

    def begin(self, action: Action) -> None:
        """Begin to sum up the gradients of a stage."""
        assert action.stage is not None
        if self.plan.program.mode.by_unit:
            self._end_begun()  # gradients of one stage at a time are on their way
        items = self.plan.program.collectives[action.stage, "REDUCE"]
        for unit in self.plan.units_of(action.stage):
            own = unit.layout.own(items)
            self.begun.append((Exchanging(unit.reduce(own)).begin(), len(own)))

    def after_pass(self) -> None:
        """Begin the next operation of reductions that have several: left to their end, none would run beside passes.

        After which pass it begins does not depend on timing, so that all ranks begin their operations in one order.
        """
        for exchange, operations in self.begun:
            if exchange.begun < operations:
                exchange.go_on()

    def mirrored(self, action: Action) -> None:
        """Sum up the reduced gradients of a stage with those of the rank that has its layers too."""
        self.end()
        assert action.stage is not None
        items = self.plan.program.collectives[action.stage, action.kind]
        for unit, item in zip(self.plan.units_of(action.stage), items, strict=True):
            assert unit.reduced is not None
            self.plan.communicator.start(item, unit.reduced, unit.gradient_width).wait()

    def tied(self, action: Action) -> None:
        """Sum up the gradient of a table that another stage has too."""
        self.end()
        (item,) = self.plan.program.collectives[None, "REDUCE_TIED"]
        unit = self.plan.unit_of[TABLE]
        part = unit.tied()
        self.plan.communicator.start(item, part, unit.gradient_width).wait()
        unit.set_tied(part)

    def end(self) -> None:
        """End all reductions; gradients that no other rank shares are reduced as they are."""
        self._end_begun()
        for unit in self.plan.all_units:
            if unit.reduced is None:
                Exchanging(unit.reduce(())).begin().finish()

    def _end_begun(self) -> None:
        for exchange, _ in self.begun:
            exchange.finish()
        self.begun.clear()
