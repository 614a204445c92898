"""Units and optimizer of an emulated rank: exchanges without contents, and a step that only takes its time."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from meshwright.model.named_tensors import TOKEN_TABLE
from meshwright.model.operators.blocks import EMBEDDING_TABLE
from meshwright.program.model_states.state_elements import DENSE_MESH, EXPERT_MESH, StateMesh
from meshwright.program.pass_items import Collective
from meshwright.program.program import Program, Stage
from meshwright.program.rank_units.unit_layout import UnitLayout
from meshwright.runtime.comm.communicator import Communicator
from meshwright.runtime.emulation.clock import Clock
from meshwright.runtime.emulation.communicator import STAMP_NUMBERS, EmulatedCommunicator
from meshwright.runtime.emulation.islands_exchanges import EmulatedSynchroniser
from meshwright.runtime.executor.rank_plan import RankPlan
from meshwright.runtime.precision import PRECISIONS
from meshwright.runtime.state.optimizer import Optimizer
from meshwright.runtime.state.parameter_lifecycle import StepStates
from meshwright.runtime.state.sharded_unit import Steps, Unit
from meshwright.schedules.action import Action


class EmulatedUnit(Unit):
    """A unit without parameters; it runs the Program's exchanges on its mesh, one after another."""

    def gather(self, items: Sequence[Collective]) -> Steps:
        """Run every gather of the Program."""
        for item in items:
            yield self.communicator.start(item, self.owned, 0)

    def reduce(self, items: Sequence[Collective]) -> Steps:
        """Run every reduction of the Program."""
        for item in items:
            yield self.communicator.start(item, self.owned, 0)
        self.reduced = self.owned

    def sum_over_ranks(
        self, item: Collective, gradient: torch.Tensor, shard: torch.Tensor | None = None
    ) -> Steps:
        """Run the Program's exchange."""
        yield self.communicator.start(item, self.owned, 0)

    def tied(self) -> torch.Tensor:
        """Return an empty buffer: there is no tied table to sum."""
        return self.owned

    def set_tied(self, summed: torch.Tensor) -> None:
        """Do nothing: there is no tied table."""


@dataclass
class EmulatedOptimizer(Optimizer):
    """An optimizer whose step takes ``seconds``, behind the ``codec_s`` of exchanges inside the step."""

    clock: Clock = field(kw_only=True)
    seconds: float = field(kw_only=True)
    codec_s: float = field(kw_only=True)

    def squares(self) -> torch.Tensor:
        """Return zero: there are no gradients."""
        return torch.zeros((), dtype=torch.float64)

    def update(self, norm: float, factor: float = 1.0) -> None:
        """Take the time of a step."""
        self.step += 1
        if self.codec_s:
            self.clock.work(self.codec_s)
        start = self.clock.work(self.seconds)
        self.clock.record(Action("STEP"), start, self.clock.now, "compute")
        for unit in self.plan.trained_units:
            unit.reduced = None


@dataclass
class EmulatedStates(StepStates):
    """States of a step whose passes over parameters take ``seconds`` each.

    ``exchanges`` are those between islands.
    """

    clock: Clock = field(kw_only=True)
    seconds: float = field(kw_only=True)
    exchanges: EmulatedSynchroniser = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.synchroniser = self.exchanges
        self.arrivals.late = None  # emulated replicas are equal: all of them arrive

    def perturb(self, action: Action) -> None:
        """Take the time of a pass over parameters."""
        start = self.clock.work(self.seconds)
        self.clock.record(action, start, self.clock.now, "compute")


def emulated_plan(program: Program, communicator: EmulatedCommunicator) -> RankPlan:
    """Return the plan of an emulated rank: empty units in place of real ones, experts separate."""
    pipeline_rank = program.parts.pipeline_rank(communicator.rank)
    stages = program.sections_of(pipeline_rank)
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
        unit_of={TOKEN_TABLE: tables[0]} if tables else {},
        buffers={},
    )


def _units(stage: Stage, communicator: EmulatedCommunicator) -> tuple[tuple[EmulatedUnit, ...], ...]:
    """Return the units of each block if parameters are gathered layer by layer, of the whole stage otherwise."""
    program, name = communicator.program, f"stage {stage.index}"
    places: list[tuple[int, ...]] = []
    for part, own in program.parts.blocks_by_part(stage.blocks).items():
        by_layer = program.parts[part].mode.gather == "per-layer"
        places += [(block,) for block in own] if by_layer else [tuple(own)]
    found = []
    for blocks in places:
        of_part = communicator.on(program.parts.of_blocks[blocks[0]])
        operators = (op for block in blocks for op in program.blocks[block].operators)
        of_experts = any(op.place == "expert" and op.parameters for op in operators)
        meshes = (DENSE_MESH, EXPERT_MESH) if of_experts else (DENSE_MESH,)
        found.append(tuple(_unit(name, mesh, of_part) for mesh in meshes))
    return tuple(found)


def _unit(name: str, mesh: StateMesh, communicator: Communicator) -> EmulatedUnit:
    return EmulatedUnit(
        name=name,
        layout=UnitLayout((), 0, 1, mesh),
        communicator=communicator,
        precision=PRECISIONS["fp64"],
        sequence_parallel=False,
        accumulates=False,
        gradient_width=0,
        parameter_width=0,
    )


def _has_table(program: Program, block: int) -> bool:
    operators = program.blocks[block].operators
    return any(p.name == EMBEDDING_TABLE for op in operators for p in op.parameters)
