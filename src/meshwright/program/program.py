"""The Program: a plan lowered to states, groups and action lists, read by predictor, simulator and executor.

Ranks that do the same are one *class*; with one layout a class is a pipeline rank, so 16,384 ranks of an
8-stage plan have 8 action lists. A list says what happens in which order; a body says what happens inside a
forward or backward action, down to each operator and collective. Both towers read these values and nothing
else of the plan.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from meshwright.model.graph import Block
from meshwright.model.operators.operator_types import LowRank
from meshwright.plans.synchronisation.synchronisation import Synchronisation, shares_per_replica
from meshwright.program.layouts.table_transfers import TableTransfer, table_transfers
from meshwright.program.model_states.bidirectional_gradient_reduction import MIRRORED
from meshwright.program.model_states.hidden_matrices import MATRICES
from meshwright.program.model_states.state_elements import StateEntry, StateKind, embedding_names
from meshwright.program.model_states.states_on_host import HostStates, PassCopies
from meshwright.program.pass_items import Body, Collective, Item, PassKind
from meshwright.program.program_parts import ProgramParts
from meshwright.program.reshard import Reshard
from meshwright.program.synchronisation.islands import ISLAND, island_size
from meshwright.schedules.action import (
    Action,
    Kind,
    format_actions,
)
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.vocabulary import FORMS
from meshwright.stack.stack import Stack
from meshwright.workload.optimizer_choice import ADAMW

TABLE_PIECES = ("table",)
"""Stands for the ranks that exchange pieces of a tied table's gradient, where its two layouts differ."""


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

    ``hidden`` is the width of activations between blocks, ``table_shape`` that of the token table: (rows, width).
    ``parts`` spread the ranks, a part for each layout; ``stages`` hold blocks; ``states`` is the state table;
    ``block_items`` maps (block, pass) to what one layer does, ``bodies`` (stage, pass) to the layers of a pass; where
    replicas have unlike numbers of sequences, ``block_items`` are those of the most, and ``smaller_items`` maps (block,
    pass, sequences) to those of fewer;
    ``collectives`` maps (stage or None, kind) to what GATHER, REDUCE, REDUCE_MIRRORED, REDUCE_TIED, NORM and STEP
    exchange; a STEP of Muon has it by stage, of the first of the ranks that share a stage's states
    (``program/model_states/matrix_exchanges.py``).
    ``reshards`` are the changes of layout that messages into a stage make. ``overlapped`` names the kinds that overlap
    compute; ``lists`` has one action list per pipeline rank. ``in_flight``
    is, per pipeline rank, how many forward passes the schedule may leave without their backward pass. Per stage,
    ``activation_bytes`` are kept from F to B or I, ``weight_gradient_bytes`` from I to W; of the first
    ``offloaded_bytes``, those of its first ``offloaded_layers``, are what OFFLOAD and RELOAD move. The stages are
    ``chains`` times the whole model.
    ``changed_types`` are element types of states that are not the stack's usual ones, by key of ``dtypes``.

    ``host_states`` are the model states on the hosts, None where all are on the devices; ``state_copies`` are, per
    stage and kind of pass, the bytes of theirs that it copies.

    ``synchronise`` are the entries of that key, ``loose`` the axes over which parameters differ between exchanges
    (``program/synchronisation``).

    ``vocabulary`` is the form of a vocabulary that is spread over the pipeline ranks (``pipeline_vocabulary.py``);
    each of them has one of the ``shares``, which count as stages K + rank: what is said per stage is said of shares
    behind it, ``activation_bytes`` being kept from S to T.
    """

    blocks: tuple[Block, ...]
    hidden: int
    table_shape: tuple[int, int]
    stack: Stack
    parts: ProgramParts
    stages: tuple[Stage, ...]
    micro_batches: int
    states: tuple[StateEntry, ...]
    block_items: Mapping[tuple[int, PassKind], tuple[Item, ...]]
    bodies: Mapping[tuple[int, Kind], Body]
    collectives: Mapping[tuple[int | None, Kind], tuple[Collective, ...]]
    overlapped: frozenset[Kind]
    activation_bytes: tuple[int, ...]
    weight_gradient_bytes: tuple[int, ...]
    offloaded_layers: tuple[int, ...]
    offloaded_bytes: tuple[int, ...]
    working_bytes: tuple[int, ...]
    lists: tuple[tuple[Action, ...], ...]
    reshards: Mapping[int, Reshard] = field(default_factory=dict)
    in_flight: tuple[int, ...] = ()
    chains: int = 1
    shares: tuple[Stage, ...] = ()
    vocabulary: str | None = None
    changed_types: Mapping[str, str] = field(default_factory=dict)
    host_states: HostStates | None = None
    state_copies: Mapping[tuple[int, Kind], PassCopies] = field(default_factory=dict)
    smaller_items: Mapping[tuple[int, PassKind, int], tuple[Item, ...]] = field(default_factory=dict)
    synchronise: tuple[Synchronisation, ...] = ()
    loose: tuple[str, ...] = ()

    @property
    def sections(self) -> tuple[Stage, ...]:
        """Stages and shares, each at its index."""
        return self.stages + self.shares

    def sections_of(self, rank: int) -> tuple[Stage, ...]:
        """Return the stages and the share that a pipeline rank holds."""
        return tuple(section for section in self.sections if section.rank == rank)

    @property
    def ways(self) -> StageChains:
        """Return the path of micro-batches through the stages, and the place of the vocabulary."""
        usual = StageChains(len(self.stages), self.chains)
        if self.vocabulary is None:
            return usual
        return replace(FORMS[self.vocabulary].ways(usual, self.pipeline_ranks), rows=True)

    @property
    def pipeline_ranks(self) -> int:
        """Number of classes of equivalent ranks."""
        return len(self.lists)

    def stages_of(self, rank: int) -> tuple[Stage, ...]:
        """Return the stages that a pipeline rank holds, by their places in a chain."""
        mine = (stage for stage in self.stages if stage.rank == rank)
        return tuple(sorted(mine, key=lambda stage: self.ways.position(stage.index)))

    def held_elements(self, rank: int, kind: StateKind) -> int:
        """Elements of one kind of state on each rank of a pipeline rank."""
        mine = {section.index for section in self.sections_of(rank)}
        return sum(e.repeat * e.elements for e in self.states if e.kind == kind and e.stage in mine)

    def held_bytes(self, rank: int, kind: StateKind) -> int:
        """Bytes of one kind of state on each rank of a pipeline rank."""
        mine = {section.index for section in self.sections_of(rank)}
        return sum(e.total_bytes for e in self.states if e.kind == kind and e.stage in mine)

    def elements_on_host(self, rank: int, kind: StateKind) -> int:
        """Elements of one kind of state that each rank of a pipeline rank has on its host."""
        if self.host_states is None:
            return 0
        return int(self.host_states.on_host(kind, self.held_elements(rank, kind)))

    def edges(self) -> Iterator[Edge]:
        """Every message between pipeline ranks and every exchange between islands, in the order of the lists.

        What an exchange moves is in ``program/synchronisation``.
        """
        for rank, actions in enumerate(self.lists):
            for action in actions:
                if action.kind in ("SEND_F", "SEND_B"):
                    target = matching_receive(action)
                    assert target.stage is not None
                    yield Edge(
                        action, rank, target, self.stages[target.stage].rank, message_bytes(self, action)
                    )
                elif action.kind == "SYNC_BEGIN":
                    assert action.stage is not None
                    delay = int(self.synchronise[action.stage].delay)
                    yield Edge(action, rank, Action("SYNC_END", action.stage), rank, 0, delay)

    @property
    def split(self) -> bool:
        """Backward passes are I and W."""
        return any(action.kind == "W" for action in self.lists[0])

    @cached_property
    def steps_overlap(self) -> bool:
        """A rank begins the next step while others end this one: steps are validated after they are taken."""
        return any(Action("VALIDATE") in actions for actions in self.lists)

    @property
    def end_ranks(self) -> tuple[int, ...]:
        """The pipeline ranks of the first and of the last stage; one rank when it holds both.

        With several chains that is the beginning of the first and the end of the last one.
        """
        return tuple(dict.fromkeys((self.stages[0].rank, self.stages[-1].rank)))

    @property
    def mirrors(self) -> tuple[tuple[int, ...], ...]:
        """Pipeline ranks that hold the same layers, one for each chain."""
        copies = (self.ways.same_layers(position) for position in range(self.ways.length))
        return tuple(dict.fromkeys(tuple(sorted(self.stages[s].rank for s in same)) for same in copies))

    def group_size(self, axes: tuple[str, ...], part: int = 0) -> int:
        """Members of a group over ``axes`` of a part.

        "world" is every rank, "island" those of an island, "tied" the first and the last stage's, "mirrored" those that
        have the same layers.
        """
        if axes == ("world",):
            return self.parts.ranks
        if axes == ISLAND:
            return island_size(self.parts[0].grid, self.loose)
        if axes == ("tied",):
            return len(self.end_ranks)
        if axes == TABLE_PIECES:
            return 2
        if axes == MIRRORED:
            return self.chains
        return self.parts[part].mesh_with(axes).size(axes)

    def signature(self) -> str:
        """Return a digest by which predictor and runtime confirm that they have the same plan."""
        digest = hashlib.sha256()
        for part in _identity(self):
            digest.update(repr(part).encode())
        return digest.hexdigest()[:16]


def rank_items(program: Program, rank: int, block: int, kind: PassKind) -> tuple[Item, ...]:
    """Return what a rank does in a pass over a block."""
    first, stop = program.parts.of(block).sequences_of(rank)
    return program.smaller_items.get((block, kind, stop - first), program.block_items[block, kind])


def sequences_of_step(program: Program) -> int:
    """Sequences of a step, each counted once."""
    part = program.parts[0]
    repeated = program.stack.optimizer.passes_of_a_sequence * shares_per_replica(program.synchronise)
    return part.sequences_together * program.micro_batches // repeated


def table_ends(program: Program) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (part, pipeline rank) of the embedding and of the last stage's head."""
    first, last, of = program.stages[0], program.stages[-1], program.parts.of_blocks
    return (of[first.blocks[0]], first.rank), (of[last.blocks[-1]], last.rank)


def table_changes_layout(program: Program) -> bool:
    """Return true if two pipeline ranks hold the embedding's table in layouts of their own."""
    (first, _), (last, _) = table_ends(program)
    return first != last and table_is_apart(program)


def table_transfers_of(program: Program) -> tuple[TableTransfer, ...]:
    """Return the transfers of such a table's gradient."""
    return tuple(table_transfers(program.parts, table_ends(program), *program.table_shape))


def table_is_apart(program: Program) -> bool:
    """Return true if two pipeline ranks hold the embedding's table, for the first and for the last stage."""
    if not program.stack.optimizer.forward_only:
        return (None, "REDUCE_TIED") in program.collectives
    table = embedding_names(program.blocks)
    ops = (op for block in program.stages[-1].blocks for op in program.blocks[block].operators)
    return len(program.end_ranks) > 1 and any(p.name in table for op in ops for p in op.parameters)


def matrix_elements(program: Program, rank: int) -> int:
    """Elements of matrices whose optimizer states a rank holds: Muon's part of ``held_elements``."""
    mine, names = {section.index for section in program.sections_of(rank)}, MATRICES.values()
    return sum(e.elements for e in program.states if e.name in names and e.stage in mine)


def _identity(program: Program) -> Iterator[object]:
    """Everything that two readers of one plan must agree on, in plain types."""
    part = program.parts[0]
    for grid in (part.grid, part.expert_grid):
        yield [(axis, int(grid.sizes[axis])) for axis in grid.order]
    yield program.stack.id
    yield from (part.mode, program.stages, program.states, sorted(program.overlapped), program.in_flight)
    yield [block.recompute for block in program.blocks]
    yield program.vocabulary, program.shares
    yield program.micro_batches, int(part.message_bytes), program.activation_bytes, program.working_bytes
    yield program.weight_gradient_bytes, program.offloaded_layers, program.offloaded_bytes
    yield [_plain_collectives(key, value) for key, value in program.collectives.items()]
    for (stage, kind), body in program.bodies.items():
        yield [_plain_collectives((stage, kind, s.block, s.count), s.overlapped) for s in body]
    yield from (format_actions(actions) for actions in program.lists)
    if program.stack.optimizer != ADAMW:
        yield str(program.stack.optimizer)
    if part.shape.documents is not None:
        yield "documents are kept apart"
    if part.shape.capacity is not None:
        yield str(part.shape.capacity)
    if any(entry.packed_bytes is not None for entry in program.states):
        yield [entry.packed_bytes for entry in program.states]
    products = [op for block in program.blocks for op in block.operators if isinstance(op, LowRank)]
    if products:
        yield [(op.name, op.rank, op.scale, op.matrices) for op in products]
    if program.changed_types:
        yield sorted(program.changed_types.items())
    if program.stack.deduplicates_exchange:
        yield "copies of tokens go once", part.expert_grid.parts
    if program.host_states is not None:
        yield tuple(program.host_states.shares), int(program.host_states.leave)
        yield [(key, float(c.out_bytes), float(c.back_bytes)) for key, c in program.state_copies.items()]
    if any(part.expert_orders):
        yield part.expert_orders
    if any(of.batch_share for of in program.parts):
        yield [of.batch_share for of in program.parts]
    if any(of.shape.state_share for of in program.parts):
        yield [of.shape.state_share for of in program.parts]
    if program.synchronise:
        yield program.loose, [entry.to_data() for entry in program.synchronise]


def _plain_collectives(key: object, collectives: Iterable[Collective]) -> object:
    """Numbers as floats: numpy's print differently from release to release."""
    return key, [(c.kind, c.axes, float(c.logical_bytes), c.phase) for c in collectives]


def message_bytes(program: Program, send: Action, rank: int | None = None) -> int:
    """Bytes of one rank's message to another pipeline rank; where layouts change, of all ranks' messages together.

    None: the rank with the largest message.
    """
    reshard = message_reshard(program, send)
    if reshard is not None:
        return reshard.moved("F" if send.kind.endswith("_F") else "B").total
    part = program.parts[message_part(program, send)]
    return part.message_bytes if rank is None else part.message_bytes_of(rank)


def message_part(program: Program, message: Action) -> int:
    """Return the index of the part at this end of a message: the stage's last block's, or its first one's."""
    assert message.stage is not None
    at = -1 if message.kind in ("SEND_F", "RECV_B") else 0
    return program.parts.of_blocks[program.stages[message.stage].blocks[at]]


def message_reshard(program: Program, message: Action) -> Reshard | None:
    """Return the change of layout that a message makes, if any."""
    assert message.stage is not None
    return program.reshards.get(message.stage + (message.kind in ("SEND_F", "RECV_B")))


def matching_receive(send: Action) -> Action:
    """Return the receive of a send: activations go to the next stage, gradients to the previous one."""
    assert send.stage is not None
    if send.kind == "SEND_F":
        return Action("RECV_F", send.stage + 1, send.micro_batch)
    return Action("RECV_B", send.stage - 1, send.micro_batch)
