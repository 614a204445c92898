"""Average a rank's parameters over ranks: those of this step, or of an earlier one.

A collective of AVERAGE has a *version* k. With k = 0 the parameters of this step become their mean over its ranks.
With k ≥ 1 the mean is that of the parameters of k steps ago, which are kept until then. Its exchange begins with the
step that takes it, and ends behind the optimizer's step:

    θ_t ← θ_t + mean(θ_{t−k}) − θ_{t−k}

Nothing happens in the first k steps. Kept values are in the dtype of the master copy, k of them for each unit; that of
step j is in place j mod k.
"""

from dataclasses import dataclass, field

import torch

from meshwright.program.pass_items import Collective
from meshwright.runtime.comm.communicator import Work
from meshwright.runtime.executor.rank_plan import RankPlan, own_exchanges
from meshwright.runtime.state.sharded_unit import Unit
from meshwright.schedules.action import Action

MEAN_BYTES = 4
"""An element of a parameter's master copy on the wire."""


@dataclass
class PendingMean:
    """The sum of a unit's parameters over ranks, when its exchange has ended."""

    total: torch.Tensor
    work: Work

    def result(self, ranks: int) -> torch.Tensor:
        """Wait for the end and return the mean over so many ranks."""
        self.work.wait()
        return self.total / ranks


@dataclass
class ParameterMeans:
    """The means of one rank. ``kept`` has the earlier parameters of each unit, ``begun`` the exchanges of this step."""

    plan: RankPlan
    step: int = 0
    kept: dict[str, list[torch.Tensor]] = field(init=False)
    begun: dict[str, PendingMean] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kept = {
            unit.name: [torch.zeros_like(unit.owned) for _ in range(item.version)]
            for stage in self.plan.stages
            for unit, item in self._items(stage)
        }

    def begin(self, step: int) -> None:
        """Begin the exchanges of earlier parameters that step number ``step`` takes."""
        self.step = step
        for stage in self.plan.stages:
            for unit, item in self._items(stage):
                if 0 < item.version < step:
                    self.begun[unit.name] = self._start(item, self._earlier(unit, item))

    def average(self, action: Action) -> None:
        """Add what the mean of a stage's parameters changes, and keep them for later steps."""
        assert action.stage is not None
        for unit, item in self._items(action.stage):
            ranks = len(self.plan.communicator.on(item.part).ranks_of(item.axes))
            if item.version == 0:
                unit.owned.copy_(self._start(item, unit.owned).result(ranks))
                continue
            earlier = self._earlier(unit, item)
            if unit.name in self.begun:
                unit.owned.add_(self.begun.pop(unit.name).result(ranks) - earlier)
            earlier.copy_(unit.owned)

    def _items(self, stage: int) -> list[tuple[Unit, Collective]]:
        """Return the units of a stage with their exchange."""
        items = self.plan.program.collectives.get((stage, "AVERAGE"), ())
        found = ((unit, own_exchanges(unit, items)) for unit in self.plan.trained_units_of(stage) if items)
        return [(unit, item) for unit, own in found for item in own]

    def _earlier(self, unit: Unit, item: Collective) -> torch.Tensor:
        """Return the memory of the parameters of ``version`` steps ago, where this step's go next."""
        return self.kept[unit.name][self.step % item.version]

    def _start(self, item: Collective, value: torch.Tensor) -> PendingMean:
        total = value.clone()
        return PendingMean(total, self.plan.communicator.start(item, total, MEAN_BYTES))
