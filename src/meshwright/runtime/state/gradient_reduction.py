"""Reduce a rank's gradients over the ranks that share them: started by an action, ended when they are needed."""

from dataclasses import dataclass, field

from meshwright.model.named_tensors import TOKEN_TABLE
from meshwright.program.lowering.step_collectives import reduces_stages
from meshwright.runtime.executor.block_passes import PendingExchange
from meshwright.runtime.executor.rank_plan import RankPlan, own_exchanges
from meshwright.runtime.state.frozen_unit import FrozenUnit
from meshwright.schedules.action import Action


@dataclass
class GradientReductions:
    """Gradient reductions in progress, each with its number of operations."""

    plan: RankPlan
    begun: list[tuple[PendingExchange, int]] = field(default_factory=list)

    def begin(self, action: Action) -> None:
        """Start to reduce the gradients of a stage."""
        assert action.stage is not None
        if self.plan.program.parts.by_unit:
            self._end_begun()  # gradients of only one stage are reduced at a time
        items = self.plan.program.collectives[action.stage, "REDUCE"]
        for unit in self.plan.trained_units_of(action.stage):
            if not reduces_stages(unit.communicator.part):
                continue  # its passes have done so
            own = own_exchanges(unit, items)
            self.begun.append((PendingExchange(unit.reduce(own)).begin(), len(own)))

    def after_pass(self) -> None:
        """Start the next operation of reductions that have several, so that they overlap passes.

        The pass after which it starts does not depend on timing, so all ranks start their operations in one order.
        """
        for exchange, operations in self.begun:
            if exchange.begun < operations:
                exchange.go_on()

    def mirrored(self, action: Action) -> None:
        """Reduce a stage's gradients with those of the pipeline rank that holds the same layers."""
        self.end()
        assert action.stage is not None
        items = self.plan.program.collectives[action.stage, action.kind]
        for unit, item in zip(self.plan.trained_units_of(action.stage), items, strict=True):
            assert unit.reduced is not None
            PendingExchange(unit.sum_over_ranks(item, unit.reduced)).begin().finish()

    def tied(self, action: Action) -> None:
        """Reduce the gradient of a table that another stage holds too."""
        self.end()
        (item,) = self.plan.program.collectives[None, "REDUCE_TIED"]
        unit = self.plan.unit_of[TOKEN_TABLE]
        assert not isinstance(unit, FrozenUnit), "a frozen table has no gradient"
        part = unit.tied()
        PendingExchange(unit.sum_over_ranks(item, part)).begin().finish()
        unit.set_tied(part)

    def end(self) -> None:
        """End all reductions; gradients that no other rank shares need none."""
        self._end_begun()
        for unit in self.plan.trained_units:
            if unit.reduced is None:
                PendingExchange(unit.reduce(())).begin().finish()
        if self.plan.hosting is not None:
            self.plan.hosting.lots.end()

    def _end_begun(self) -> None:
        for exchange, _ in self.begun:
            exchange.finish()
        self.begun.clear()
