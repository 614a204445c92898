"""Describe the parts of a Program: the blocks of each layout, with their meshes, local shape, mode and sharding.

A plan with one layout has one part. With several layouts every block belongs to the part of its layout, and every
collective names the part whose meshes it runs on. All parts of a Program spread the same ranks, and agree which of them
are a pipeline rank.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from meshwright.program.layouts.rank_mesh import RankGrid, grid_with
from meshwright.program.local_shape import LocalShape, Mode


@dataclass(frozen=True)
class Part:
    """The blocks of one layout on the ranks that hold them.

    ``grid`` and ``expert_grid`` are the two meshes over the ranks. ``sharding`` is the ZeRO name of what its states are
    cut by, which may be another than the plan's (``program/model_states/stack_zero_semantics.py``). ``message_bytes``
    are those of one rank's pipeline message between two of its blocks. Ranks fill the
    nodes in ``node_order``; None: as the cluster has them. Ranks of ep hold a layer's experts in the order that
    ``expert_orders`` has for it; None, or nothing: as the model has them.

    ``batch_share`` has each replica's sequences of a micro-batch, dp_replicate outermost; empty: all have those of the
    shape. Otherwise the shape and ``message_bytes`` are those of the replica with most.
    """

    name: str
    grid: RankGrid
    expert_grid: RankGrid
    shape: LocalShape
    mode: Mode
    sharding: str
    message_bytes: int = 0
    node_order: tuple[int, ...] | None = None
    expert_orders: tuple[tuple[int, ...] | None, ...] = ()
    batch_share: tuple[int, ...] = ()

    def mesh_with(self, axes: tuple[str, ...]) -> RankGrid:
        """Return the mesh that has all of ``axes``."""
        return grid_with(axes, self.grid, self.expert_grid)

    @property
    def replicas(self) -> int:
        """Number of data-parallel replicas."""
        return self.grid.size(("dp_replicate", "dp_shard"))

    @property
    def sequences_together(self) -> int:
        """Sequences of all replicas in a micro-batch."""
        return sum(self.batch_share) or self.replicas * int(self.shape.micro_batch)

    def sequences_of(self, rank: int) -> tuple[int, int]:
        """Return a rank's range of the sequences of a micro-batch: its first, and the end."""
        place = self.grid.coordinates(rank)
        replica = place["dp_replicate"] * self.grid.sizes["dp_shard"] + place["dp_shard"]
        if not self.batch_share:
            size = int(self.shape.micro_batch)
            return replica * size, (replica + 1) * size
        return sum(self.batch_share[:replica]), sum(self.batch_share[: replica + 1])

    def shape_of(self, rank: int) -> LocalShape:
        """Return the local shape of a rank: with the sequences of its own replica."""
        if not self.batch_share:
            return self.shape
        first, stop = self.sequences_of(rank)
        return replace(self.shape, micro_batch=stop - first)

    def message_bytes_of(self, rank: int) -> int:
        """Return the bytes of a rank's pipeline message, which has its own sequences."""
        first, stop = self.sequences_of(rank)
        return self.message_bytes * (stop - first) // int(self.shape.micro_batch)

    def expert_order(self, layer: int | None) -> tuple[int, ...] | None:
        """Return the experts of a layer as ranks of ep hold them; None: the model's order."""
        return self.expert_orders[layer] if self.expert_orders and layer is not None else None


@dataclass(frozen=True)
class ProgramParts:
    """All parts of a Program, a part for each layout; ``of_blocks`` has the index of every block's part."""

    every: tuple[Part, ...]
    of_blocks: tuple[int, ...]

    def __iter__(self) -> Iterator[Part]:
        """Iterate over the parts."""
        return iter(self.every)

    def __len__(self) -> int:
        """Return the number of parts."""
        return len(self.every)

    def __getitem__(self, index: int) -> Part:
        """Return the part with an index."""
        return self.every[index]

    @property
    def only(self) -> Part:
        """The part of a Program of one layout. Raises ValueError for several."""
        (part,) = self.every
        return part

    def of(self, block: int) -> Part:
        """Return the part that a block belongs to."""
        return self.every[self.of_blocks[block]]

    def blocks_by_part(self, blocks: Iterable[int]) -> dict[int, list[int]]:
        """Return blocks by the index of their part, in the order of the first of each."""
        found: dict[int, list[int]] = {}
        for block in blocks:
            found.setdefault(self.of_blocks[block], []).append(block)
        return found

    def local_shapes(self) -> list[tuple[LocalShape, ...]]:
        """Return the local shapes that a rank has, one in each part: those of every rank that has others."""
        if not any(part.batch_share for part in self):
            return [tuple(part.shape for part in self)]
        ranks = self.members(0)
        counts = {tuple(part.sequences_of(rank) for part in self): rank for rank in ranks}
        return [tuple(part.shape_of(rank) for part in self) for rank in counts.values()]

    @property
    def by_unit(self) -> bool:
        """Parameters are gathered and gradients reduced with each unit of micro-batches."""
        return any(part.mode.by_unit for part in self.every)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.every[0].grid.ranks

    def pipeline_rank(self, rank: int) -> int:
        """Return the position of a rank in the pipeline."""
        return self.every[0].grid.coordinates(rank)["pp"]

    def pipeline_of(self, rank: int) -> tuple[int, ...]:
        """Return the ranks at the same place of every pipeline rank."""
        return self.every[0].grid.group_of(rank, ("pp",))

    def members(self, pipeline_rank: int) -> tuple[int, ...]:
        """Return the ranks of a pipeline rank, in order."""
        return tuple(row[pipeline_rank] for row in self.pipelines)

    @property
    def pipelines(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of every pipeline, by pipeline rank."""
        return tuple(tuple(int(rank) for rank in row) for row in self.every[0].grid.groups(("pp",)))
