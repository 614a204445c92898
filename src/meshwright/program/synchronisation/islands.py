"""The islands of a Program: ranks whose parameters are equal between exchanges.

Axes are *loose* where replicas differ between exchanges. An island is a pipeline with all axes but these. Experts
lie on a mesh of their own, whose axes of data parallelism are the same groups of ranks where an axis is loose
(``plans/rules/synchronisation``).
"""

from collections.abc import Iterable, Mapping, Sequence

from meshwright.program.layouts.rank_mesh import RankGrid

ISLAND = ("island",)
"""Stands for the axes of an island's ranks, pipeline ranks included."""
EXPERT_AXES: Mapping[str, str] = {"dp_replicate": "edp_replicate", "dp_shard": "edp_shard"}
"""Axes of data parallelism of the experts' mesh, by those of the attention mesh."""


def on_both_meshes(axes: Iterable[str]) -> frozenset[str]:
    """Return axes of data parallelism with those of the experts' mesh."""
    given = tuple(axes)
    return frozenset((*given, *(EXPERT_AXES[axis] for axis in given)))


def island_size(grid: RankGrid, loose: Sequence[str]) -> int:
    """Return the ranks of an island."""
    return grid.ranks // grid.size(tuple(loose))


def islands(grid: RankGrid, loose: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the ranks of every island; the order is that of the loose axes, the first varying fastest."""
    tight = tuple(axis for axis in grid.order if axis not in loose)
    return [tuple(int(rank) for rank in row) for row in grid.groups(tight)]
