"""Units and optimizer of an emulated rank: exchanges without contents, and a step that only takes its time."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from meshwright.model.blocks import EMBEDDING_TABLE
from meshwright.program.items import Collective
from meshwright.program.program import Program, Stage
from meshwright.program.states import DENSE_MESH, EXPERT_MESH, StateMesh
from meshwright.runtime.emulation.clock import Clock
from meshwright.runtime.emulation.communicator import STAMP_NUMBERS, EmulatedCommunicator
from meshwright.runtime.optimizer import Optimizer
from meshwright.runtime.precision import PRECISIONS
from meshwright.runtime.rank_plan import TABLE, RankPlan
from meshwright.runtime.unit import Steps, Unit
from meshwright.runtime.unit_layout import UnitLayout
from meshwright.schedule.action import Action


class EmulatedUnit(Unit):
    """A unit without parameters, whose exchanges are those of the Program on its mesh, one after the other."""

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
    """What an emulated rank holds: empty units where a real one has some, those of experts apart."""
    pipeline_rank = program.grid.coordinates(communicator.rank)["pp"]
    stages = program.parts_of(pipeline_rank)
    units = {stage.index: _units(stage, communicator) for stage in stages}
    tables = [units[s.index][0][0] for s in stages if any(_has_table(program, block) for block in s.blocks)]
    return RankPlan(
        program,
        communicator,
        PRECISIONS["fp64"],
        STAMP_NUMBERS,
        pipeline_rank,
        places=dict.fromkeys(units, ()),
        blocks=dict.fromkeys(units, ()),
        units=units,
        unit_of={TABLE: tables[0]} if tables else {},
        buffers={},
    )


def _units(stage: Stage, communicator: EmulatedCommunicator) -> tuple[tuple[EmulatedUnit, ...], ...]:
    """Of each block where parameters are gathered layer by layer, and of the whole stage otherwise."""
    program, name = communicator.program, f"stage {stage.index}"
    places = [(b,) for b in stage.blocks] if program.mode.gather == "per-layer" else [stage.blocks]
    found = []
    for blocks in places:
        operators = (op for block in blocks for op in program.blocks[block].operators)
        of_experts = any(op.place == "expert" and op.parameters for op in operators)
        meshes = (DENSE_MESH, EXPERT_MESH) if of_experts else (DENSE_MESH,)
        found.append(tuple(_unit(name, mesh, communicator) for mesh in meshes))
    return tuple(found)


def _unit(name: str, mesh: StateMesh, communicator: EmulatedCommunicator) -> EmulatedUnit:
    return EmulatedUnit(
        name=name,
        layout=UnitLayout((), 0, 1, mesh),
        communicator=communicator,
        precision=PRECISIONS["fp64"],
        sequence_parallel=False,
        accumulates=False,
        gradient_width=0,
    )


def _has_table(program: Program, block: int) -> bool:
    operators = program.blocks[block].operators
    return any(p.name == EMBEDDING_TABLE for op in operators for p in op.parameters)
