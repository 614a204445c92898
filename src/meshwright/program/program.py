"""The Program: what a plan means, in full, for all readers.

Ranks that do the same are one *class*; with one layout a class is a pipeline rank, so 16,384 ranks of an
8-stage plan have 8 action lists. A list says what happens in which order; a body says what happens inside a
forward or backward action, down to each operator and collective. Both towers read these values and nothing
else of the plan.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from meshwright.model.graph import Block
from meshwright.program.items import Body, Collective, Item, PassKind
from meshwright.program.mesh import RankGrid
from meshwright.program.shape import LocalShape, Mode
from meshwright.program.states import StateEntry, StateKind
from meshwright.schedule.action import Action, Kind, format_actions
from meshwright.stack.stack import Stack

Stream = Literal["compute", "data-parallel", "send", "receive"]

STREAM_OF: Mapping[Kind, Stream] = {
    "SEND_F": "send",
    "SEND_B": "send",
    "RECV_F": "receive",
    "RECV_B": "receive",
}
"""Streams of actions that are not compute; GATHER and REDUCE say theirs by ``Program.beside``."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Consecutive blocks. ``layers`` are indices of decoder layers, ``blocks`` indices into the model's blocks."""

    index: int
    rank: int
    blocks: tuple[int, ...]
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """Data that flows from one action to another on a different rank.

    ``version`` is how many iterations old the value may be: 0 for synchronous training.
    """

    source: Action
    source_rank: int
    target: Action
    target_rank: int
    message_bytes: int
    version: int = 0


@dataclass(frozen=True)
class Program:
    """A lowered plan.

    ``grid`` and ``expert_grid`` spread the ranks; ``stages`` hold blocks; ``states`` is the state table;
    ``block_items`` maps (block, pass) to what one layer does, ``bodies`` (stage, pass) to the layers of a pass;
    ``collectives`` maps (stage or None, kind) to what GATHER, REDUCE, REDUCE_TIED and NORM exchange; ``beside``
    names the kinds that run beside compute; ``lists`` has one action list per pipeline rank.
    """

    blocks: tuple[Block, ...]
    stack: Stack
    shape: LocalShape
    mode: Mode
    grid: RankGrid
    expert_grid: RankGrid
    stages: tuple[Stage, ...]
    micro_batches: int
    states: tuple[StateEntry, ...]
    block_items: Mapping[tuple[int, PassKind], tuple[Item, ...]]
    bodies: Mapping[tuple[int, Kind], Body]
    collectives: Mapping[tuple[int | None, Kind], tuple[Collective, ...]]
    beside: frozenset[Kind]
    p2p_bytes: int
    activation_bytes: tuple[int, ...]
    working_bytes: tuple[int, ...]
    lists: tuple[tuple[Action, ...], ...]

    @property
    def pipeline_ranks(self) -> int:
        """Number of classes of equivalent ranks."""
        return len(self.lists)

    def stages_of(self, rank: int) -> tuple[Stage, ...]:
        """The stages that a pipeline rank holds."""
        return tuple(stage for stage in self.stages if stage.rank == rank)

    def held_elements(self, rank: int, kind: StateKind) -> int:
        """Elements of one kind of state on each rank of a pipeline rank."""
        mine = {stage.index for stage in self.stages_of(rank)}
        return sum(e.repeat * e.elements for e in self.states if e.kind == kind and e.stage in mine)

    def held_bytes(self, rank: int, kind: StateKind) -> int:
        """Bytes of one kind of state on each rank of a pipeline rank."""
        mine = {stage.index for stage in self.stages_of(rank)}
        return sum(e.total_bytes for e in self.states if e.kind == kind and e.stage in mine)

    def edges(self) -> Iterator[Edge]:
        """Every message between pipeline ranks, in the order of the senders' lists."""
        for rank, actions in enumerate(self.lists):
            for action in actions:
                if action.kind in ("SEND_F", "SEND_B"):
                    target = matching_receive(action)
                    assert target.stage is not None
                    yield Edge(action, rank, target, self.stages[target.stage].rank, self.p2p_bytes)

    def group_axes(self, axes: tuple[str, ...]) -> RankGrid:
        """The grid that an axis belongs to."""
        return self.grid if all(axis in self.grid.sizes for axis in axes) else self.expert_grid

    def group_size(self, axes: tuple[str, ...]) -> int:
        """Members of a group over ``axes``."""
        return self.group_axes(axes).size(axes)

    def signature(self) -> str:
        """A digest that predictor and runtime compare before they talk about the same plan."""
        digest = hashlib.sha256()
        for part in (self.grid, self.expert_grid, self.stages, self.states, sorted(self.beside)):
            digest.update(repr(part).encode())
        for actions in self.lists:
            digest.update(format_actions(actions).encode())
        return digest.hexdigest()[:16]


def matching_receive(send: Action) -> Action:
    """The receive of a send: activations go to the next stage, gradients to the previous one."""
    assert send.stage is not None
    if send.kind == "SEND_F":
        return Action("RECV_F", send.stage + 1, send.micro_batch)
    return Action("RECV_B", send.stage - 1, send.micro_batch)
