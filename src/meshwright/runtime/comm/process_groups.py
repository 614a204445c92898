"""Create the process groups of a rank: one for each group of ranks in a collective, and channels of messages.

All ranks create the groups in one order when a run begins. On accelerators, messages between two pipeline ranks have
one group per direction: with a shared one, plain sends and receives of 1F1B can deadlock under NCCL. The sums of steps
that are validated afterwards have their own channels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from meshwright.model.operators.operator_types import Dispatch
from meshwright.plans.synchronisation.synchronisation import exchanged_between_steps
from meshwright.program.lowering.optimizer_post_validation import sum_neighbours
from meshwright.program.model_states.bidirectional_gradient_reduction import MIRRORED
from meshwright.program.pass_items import Compute, exchanges_of, legs_of
from meshwright.program.program import TABLE_PIECES, Program
from meshwright.program.synchronisation.islands import ISLAND, islands, on_both_meshes
from meshwright.schedules.action import EXCHANGES, Action

Axes = tuple[str, ...]
GroupKey = tuple[str, int, Axes]
"""The kind of exchange that has groups of its own, the part of the Program, and the axes."""
EXPERT_RANKS: Axes = ("etp", "ep")
"""The axes whose ranks together hold all experts."""
SEQUENCE_RANKS: Axes = ("cp", "tp")
"""The axes whose ranks together hold a sequence outside the tensor-parallel region."""
MESSAGES: Axes = ("pp",)
SYNCHRONISING = Action("SYNC_BEGIN")
"""The action whose exchanges between islands run while their ranks do something else, in groups of their own."""


@dataclass(frozen=True)
class Group:
    """Ranks that communicate together; ``handle`` is torch's process group, None for all ranks."""

    ranks: tuple[int, ...]
    handle: dist.ProcessGroup | None


@dataclass
class ProcessGroups:
    """The groups that one rank is in, and the channels of messages on accelerators.

    ``wait`` waits for an operation, torch's work handle.
    """

    over_axes: dict[GroupKey, Group] = field(default_factory=dict)
    channels: dict[tuple[int, int], dist.ProcessGroup | None] = field(default_factory=dict)
    sum_channels: dict[tuple[int, int], dist.ProcessGroup | None] = field(default_factory=dict)
    wait: Callable[[Any], object] = lambda work: work.wait()

    def connect(self, program: Program, rank: int, timeout_s: float, *, accelerated: bool) -> None:
        """Create all groups that the Program names; every rank does so in the same order."""
        for kind, part, axes in sorted(groups_used(program)):
            for ranks in groups_of(program, axes, part):
                all_ranks = not kind and len(ranks) == program.parts.ranks
                handle = None if all_ranks else self.new(ranks, rank, timeout_s)
                if rank in ranks:
                    self.over_axes[kind, part, axes] = Group(ranks, handle)
        if accelerated:
            for pair in sorted(_neighbours(program)):
                self.channels[pair] = self.new(pair, rank, timeout_s)
            for pair in sorted(sum_neighbours(program.parts.only.grid)) if program.steps_overlap else ():
                self.sum_channels[pair] = self.new(pair, rank, timeout_s)

    def new(self, ranks: Sequence[int], rank: int, timeout_s: float) -> dist.ProcessGroup | None:
        """Create a group of ranks; None on a rank that is not in it."""
        made = dist.new_group(list(ranks), timeout=timedelta(seconds=timeout_s))
        return made if rank in ranks else None


def groups_of(program: Program, axes: Axes, part: int = 0) -> list[tuple[int, ...]]:
    """Return all groups over ``axes`` of a part.

    ``axes`` may be of the attention mesh or the experts' mesh, the world, the two ends of a pipeline (``tied``), or its
    ranks with the same layers (``MIRRORED``).
    """
    if axes == ("world",):
        return [tuple(range(program.parts.ranks))]
    if axes == TABLE_PIECES:
        return []
    if axes == ISLAND:
        return islands(program.parts[0].grid, program.loose)
    if axes == ("tied",):
        first, last = program.end_ranks
        return [(row[first], row[last]) for row in program.parts.pipelines]
    if axes == MIRRORED:
        rows = program.parts.pipelines
        return [tuple(row[rank] for rank in ranks) for row in rows for ranks in program.mirrors]
    return [tuple(int(rank) for rank in row) for row in program.parts[part].mesh_with(axes).groups(axes)]


def groups_used(program: Program) -> set[GroupKey]:
    """Return the keys of the groups of every collective of the Program, and of the group of all ranks."""
    found: set[GroupKey] = {
        (kind if kind in EXCHANGES else "", c.part, c.axes)
        for (_, kind), collectives in program.collectives.items()
        for c in collectives
        if c.axes != TABLE_PIECES
    }
    found |= {("", 0, ("world",))} if program.parts.ranks > 1 else set()
    found |= {("", 0, ISLAND)} if program.loose and program.group_size(ISLAND) > 1 else set()
    for number in exchanged_between_steps(program.synchronise, program.loose):
        axes = program.synchronise[number].axis
        found |= {
            (SYNCHRONISING.kind, part, (axis,))
            for part in range(len(program.parts))
            for axis in on_both_meshes([axes])
        }
    for (block, _), items in program.block_items.items():
        part = program.parts.of_blocks[block]
        for item in items:
            exchanges = exchanges_of(item)
            legs = [
                leg for exchange in exchanges for leg in legs_of(exchange, program.parts[part].expert_grid)
            ]
            found |= {("", part, exchange.axes) for exchange in (*exchanges, *legs)}
            routed = isinstance(item, Compute) and isinstance(item.operator, Dispatch)
            count_axes = (EXPERT_RANKS, SEQUENCE_RANKS) if routed else ()
            found |= {("", part, axes) for axes in count_axes if program.group_size(axes, part) > 1}
    for body in program.bodies.values():
        found |= {("", c.part, c.axes) for segment in body for c in segment.overlapped}
    return found


def _neighbours(program: Program) -> set[tuple[int, int]]:
    """Return the (sender, receiver) pairs of ranks that exchange pipeline messages."""
    pairs = message_pairs(program)
    return {(row[a], row[b]) for row in program.parts.pipelines for a, b in pairs}


def message_pairs(program: Program) -> set[tuple[int, int]]:
    """Return the (sender, receiver) pairs of pipeline ranks that exchange messages.

    Exchanges between islands lead from a pipeline rank to itself.
    """
    pairs = {(edge.source_rank, edge.target_rank) for edge in program.edges()}
    return {(sender, receiver) for sender, receiver in pairs if sender != receiver}
