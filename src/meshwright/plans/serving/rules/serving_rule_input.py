"""The input of the laws of serving plans: a plan in full with what is known of its model and cluster."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from meshwright.errors import Problem
from meshwright.model.architecture import Architecture
from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.plans.serving.serving_plan import ServingPlan


@dataclass(frozen=True, slots=True)
class PlacedLayout:
    """A layout with its field in the file and the pool that has it. Equal layouts of a pool's phases are one."""

    field: str
    pool: str
    layout: ReplicaLayout


@dataclass(frozen=True, slots=True)
class ServingRuleInput:
    """A plan, the architecture of its model and the devices of its cluster; None: the noun could not be loaded."""

    plan: ServingPlan
    arch: Architecture | None
    devices: int | None

    def layouts(self) -> Iterator[PlacedLayout]:
        """Yield every layout as the file writes it."""
        for name, pool in self.plan.pools.items():
            if not pool.has_phase_layouts:
                yield PlacedLayout(f"pools.{name}.layout", name, next(iter(pool.layouts.values())))
                continue
            for phase, layout in pool.layouts.items():
                yield PlacedLayout(f"pools.{name}.layouts.{phase}", name, layout)


ServingRule = Callable[[ServingRuleInput], Iterator[Problem]]
