"""Units and optimizer of an emulated rank: exchanges without contents, and a step that only takes its time."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from meshwright.model.blocks import EMBEDDING_TABLE
from meshwright.program.items import Collective
from meshwright.program.program import Program
from meshwright.program.states import DENSE_MESH, EXPERT_MESH, StateMesh
from meshwright.runtime.emulation.clock import Clock
from meshwright.runtime.emulation.communicator import STAMP_NUMBERS, EmulatedCommunicator
from meshwright.runtime.optimizer import Optimizer
from meshwright.runtime.precision import PRECISIONS
from meshwright.runtime.rank_plan import TABLE, RankPlan
from meshwright.runtime.unit import Steps, Unit
from meshwright.runtime.unit_layout import UnitLayout
from meshwright.schedule.action import Action

EVERY_MESH = StateMesh(
    DENSE_MESH.width, DENSE_MESH.shard + EXPERT_MESH.shard, DENSE_MESH.replica + EXPERT_MESH.replica
)
"""An emulated unit stands for all of its stage's."""


class EmulatedUnit(Unit):
    """A unit without parameters, whose exchanges are the Program's, one after the other."""

    def gather(self, items: Sequence[Collective]) -> Steps:
        """Every gather of the Program."""
        for item in items:
            yield self.communicator.start(item, self.owned, 0)

    def reduce(self, items: Sequence[Collective]) -> Steps:
        """Every reduction of the Program."""
        for item in items:
            yield self.communicator.start(item, self.owned, 0)
        self.reduced = self.owned

    def tied(self) -> torch.Tensor:
        """Nothing to sum up."""
        return self.owned

    def set_tied(self, summed: torch.Tensor) -> None:
        """Nothing to put back."""


@dataclass
class EmulatedOptimizer(Optimizer):
    """An optimizer that takes ``seconds`` for its step."""

    clock: Clock = field(kw_only=True)
    seconds: float = field(kw_only=True)

    def squares(self) -> torch.Tensor:
        """No gradient, no norm."""
        return torch.zeros((), dtype=torch.float64)

    def update(self, norm: float, factor: float = 1.0) -> None:
        """Take the time of a step."""
        start = self.clock.work(self.seconds)
        self.clock.record(Action("STEP"), start, self.clock.now, "compute")
        for unit in self.plan.all_units:
            unit.reduced = None


def emulated_plan(program: Program, communicator: EmulatedCommunicator) -> RankPlan:
    """What an emulated rank holds: one empty unit for each of its stages, and for its share of the vocabulary."""
    pipeline_rank = program.grid.coordinates(communicator.rank)["pp"]
    stages = program.parts_of(pipeline_rank)
    units = {stage.index: _unit(f"stage {stage.index}", communicator) for stage in stages}
    tables = [units[s.index] for s in stages if any(_has_table(program, block) for block in s.blocks)]
    return RankPlan(
        program,
        communicator,
        PRECISIONS["fp64"],
        STAMP_NUMBERS,
        pipeline_rank,
        places=dict.fromkeys(units, ()),
        blocks=dict.fromkeys(units, ()),
        units={stage: ((unit,),) for stage, unit in units.items()},
        unit_of={TABLE: tables[0]} if tables else {},
        buffers={},
    )


def _unit(name: str, communicator: EmulatedCommunicator) -> EmulatedUnit:
    return EmulatedUnit(
        name=name,
        layout=UnitLayout((), 0, 1, EVERY_MESH),
        communicator=communicator,
        precision=PRECISIONS["fp64"],
        sequence_parallel=False,
        accumulates=False,
        gradient_width=0,
    )


def _has_table(program: Program, block: int) -> bool:
    operators = program.blocks[block].operators
    return any(p.name == EMBEDDING_TABLE for op in operators for p in op.parameters)
