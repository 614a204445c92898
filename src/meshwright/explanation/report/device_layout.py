"""The devices of a plan on the nodes of its cluster: which stages and which index of each axis a device has.

Devices of one pipeline rank differ by their indices only, so of each pipeline rank some nodes are listed in full and
the others are counted. Of many pipeline ranks those in the middle of a run of equal ones are left out and counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from meshwright.cluster.cluster import Cluster
from meshwright.cluster.fast_domains import node_devices
from meshwright.program.layouts.rank_mesh import RankGrid, strides
from meshwright.program.program import Program

AXES = ("tp", "cp", "dp_shard", "dp_replicate", "pp", "ep", "etp", "edp_shard", "edp_replicate")
EXPERT_AXES = ("ep", "etp", "edp_shard", "edp_replicate")
MOST_COLUMNS = 16
"""Pipeline ranks that are listed one by one."""
MOST_NODES = 4
"""Nodes of a pipeline rank that are listed one by one."""


def device_layout(program: Program, cluster: Cluster) -> dict[str, Any]:
    """Return axes, pipeline ranks and nodes; devices are numbered as the cluster has them."""
    places = _Places(program, node_devices(cluster.pool))
    axes = list(_axes(program, places))
    columns = list(_columns(program, places, [one["axis"] for one in axes]))
    return {
        "devices": program.parts.ranks,
        "nodes": -(-program.parts.ranks // places.of_node),
        "devices_per_node": places.of_node,
        "axes": axes,
        "pipeline_ranks": columns,
    }


class _Places:
    """The device and node of each rank."""

    def __init__(self, program: Program, of_node: int) -> None:
        self.of_node, self.order = of_node, program.parts[0].node_order

    def node(self, rank: int) -> int:
        """Return the node that a rank is on."""
        place = rank // self.of_node
        return place if self.order is None else self.order[place]

    def device(self, rank: int) -> int:
        """Return the device that a rank runs on."""
        return self.node(rank) * self.of_node + rank % self.of_node


def _grids(program: Program) -> dict[str, RankGrid]:
    """Return the grid that has each axis; the experts' axes only where experts are spread."""
    part = program.parts[0]
    grids = {axis: part.grid for axis in AXES if axis in part.grid.sizes}
    experts = part.expert_grid
    if any(experts.sizes.get(axis, 1) > 1 for axis in ("ep", "etp")):
        grids |= {axis: experts for axis in EXPERT_AXES if axis in experts.sizes}
    return grids


def _axes(program: Program, places: _Places) -> Iterator[dict[str, Any]]:
    """Yield the axes that have more than one index, with the first group of each."""
    for axis, grid in _grids(program).items():
        size = grid.sizes[axis]
        if size == 1:
            continue
        group = grid.group_of(0, [axis])
        nodes = len({places.node(rank) for rank in group})
        yield {
            "axis": axis,
            "size": size,
            "stride": int(strides(grid.sizes, grid.order)[axis]),
            "groups": grid.ranks // size,
            "nodes_of_group": nodes,
            "first_group": [places.device(rank) for rank in group],
        }


def _columns(program: Program, places: _Places, axes: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the pipeline ranks, and for those left out how many they are."""
    grids = {axis: grid for axis, grid in _grids(program).items() if axis in axes}
    for run in _runs(program):
        for rank, like in run:
            yield {
                "pipeline_rank": rank,
                "stages": [stage.index for stage in program.stages_of(rank)],
                "layers": _layers(program, rank),
                "like": like,
                **_nodes(rank, grids, program.parts[0].grid, places),
            }


def _runs(program: Program) -> Iterator[list[tuple[int, int]]]:
    """Yield runs of pipeline ranks that hold equally many layers: those to list, and how many are like the last one."""
    ranks = range(program.pipeline_ranks)
    for _, run in groupby(ranks, key=lambda rank: _sizes(program, rank)):
        members = list(run)
        if program.pipeline_ranks <= MOST_COLUMNS or len(members) <= 2:
            yield [(rank, 0) for rank in members]
        else:
            yield [(members[0], len(members) - 2), (members[-1], 0)]


def _sizes(program: Program, rank: int) -> tuple[tuple[str, ...], ...]:
    return tuple(
        tuple(program.blocks[block].kind for block in stage.blocks) for stage in program.stages_of(rank)
    )


def _layers(program: Program, rank: int) -> int:
    kinds = [program.blocks[block].kind for stage in program.stages_of(rank) for block in stage.blocks]
    return kinds.count("layer")


def _nodes(rank: int, grids: Mapping[str, RankGrid], grid: RankGrid, places: _Places) -> dict[str, Any]:
    """Return the first nodes of a pipeline rank with their devices, and the number of further nodes."""
    others = [axis for axis in grid.order if axis != "pp"]
    first = rank * int(strides(grid.sizes, grid.order)["pp"]) if "pp" in grid.sizes else 0
    found: dict[int, list[int]] = {}
    for member in grid.group_of(first, others):
        found.setdefault(places.node(member), []).append(member)
    shown = list(found)[: MOST_NODES if len(found) > MOST_NODES + 1 else MOST_NODES + 1]
    return {
        "nodes": [
            {
                "node": node,
                "devices": [
                    {"device": places.device(member)}
                    | {axis: own.coordinates(member)[axis] for axis, own in grids.items()}
                    for member in found[node]
                ],
            }
            for node in shown
        ],
        "further_nodes": len(found) - len(shown),
    }
