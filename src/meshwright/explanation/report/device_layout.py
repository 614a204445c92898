"""The devices of a plan on the nodes of its cluster: which stages and which index of each axis a device has.

Devices of one pipeline rank differ by their indices only, so of each pipeline rank some nodes are listed in full and
the others are counted. Of many pipeline ranks those in the middle of a run of equal ones are left out and counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from meshwright.cluster.cluster import Cluster
from meshwright.cluster.fast_domains import node_devices
from meshwright.program.layout_description import describe_parts, describe_reshards
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
        "parts": describe_parts(program) if len(program.parts) > 1 else [],
        "reshards": describe_reshards(program),
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


class _Axis(NamedTuple):
    """An axis called ``name``, and the mesh that has it; ``mesh`` is the mesh's title."""

    mesh: str
    grid: RankGrid
    name: str


def _meshes(program: Program) -> dict[str, _Axis]:
    """Return the axes by title, which names the layout where there are several; the experts' only if ep or etp > 1."""
    found: dict[str, _Axis] = {}
    for part in program.parts:
        grids = {name: (part.name, part.grid) for name in AXES if name in part.grid.sizes}
        experts = part.expert_grid
        if any(experts.sizes.get(name, 1) > 1 for name in ("ep", "etp")):
            grids |= {
                name: (f"{part.name} experts", experts) for name in EXPERT_AXES if name in experts.sizes
            }
        for name, own in grids.items():
            title = name if len(program.parts) == 1 or name == "pp" else f"{part.name}: {name}"
            found.setdefault(title, _Axis(*own, name))
    return found


def _axes(program: Program, places: _Places) -> Iterator[dict[str, Any]]:
    """Yield the axes that have more than one index, with the first group of each."""
    for title, (mesh, grid, axis) in _meshes(program).items():
        size = grid.sizes[axis]
        if size == 1:
            continue
        group = grid.group_of(0, [axis])
        nodes = len({places.node(rank) for rank in group})
        yield {
            "axis": title,
            "mesh": mesh,
            "size": size,
            "stride": int(strides(grid.sizes, grid.order)[axis]),
            "groups": grid.ranks // size,
            "nodes_of_group": nodes,
            "first_group": [places.device(rank) for rank in group],
        }


def _columns(program: Program, places: _Places, axes: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the pipeline ranks, and for those left out how many they are."""
    shown = {title: axis for title, axis in _meshes(program).items() if title in axes}
    for run in _runs(program):
        for rank, like in run:
            yield {
                "pipeline_rank": rank,
                "stages": [stage.index for stage in program.stages_of(rank)],
                "layers": _layers(program, rank),
                "like": like,
                **_nodes(rank, shown, program.parts[0].grid, places),
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


def _sizes(program: Program, rank: int) -> tuple[tuple[tuple[str, int], ...], ...]:
    """Return the kind and the part of every block, by stage."""
    of_blocks = program.parts.of_blocks
    return tuple(
        tuple((program.blocks[block].kind, of_blocks[block]) for block in stage.blocks)
        for stage in program.stages_of(rank)
    )


def _layers(program: Program, rank: int) -> int:
    kinds = [program.blocks[block].kind for stage in program.stages_of(rank) for block in stage.blocks]
    return kinds.count("layer")


def _nodes(rank: int, axes: Mapping[str, _Axis], grid: RankGrid, places: _Places) -> dict[str, Any]:
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
                    | {title: axis.grid.coordinates(member)[axis.name] for title, axis in axes.items()}
                    for member in found[node]
                ],
            }
            for node in shown
        ],
        "further_nodes": len(found) - len(shown),
    }
