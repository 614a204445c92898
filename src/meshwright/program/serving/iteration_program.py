"""Lower iterations of a serving replica to a forward-only Program.

A rank of attention_dp is a replica of training (``dp_replicate``) that shares the experts. An iteration of one
micro-batch is a forward pass of every stage; a pipeline has a micro-batch for each stage under way. Several iterations
stand in the lists one behind the other: those of iteration i are stages i·pp to i·pp + pp − 1 on the same pipeline
ranks, so that a micro-batch begins its next iteration when the last stage has handed its tokens back to the first one.
The rows of the state table (``iteration_states.py``) belong to the stages of the first iteration.

Left out: activations and buffers of an iteration (``cost/serving/memory.py``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from meshwright.model.graph import ModelGraph
from meshwright.plans.serving.serving_plan import Phase, Pool
from meshwright.program.layouts.rank_mesh import RankGrid
from meshwright.program.local_shape import ACTIVATION_BYTES
from meshwright.program.lowering.pass_bodies import UnitExchanges, pass_body
from meshwright.program.pass_items import Item, PassKind
from meshwright.program.program import Program, Stage
from meshwright.program.program_parts import Part, ProgramParts
from meshwright.program.serving.iteration_items import (
    SERVING_MODE,
    iteration_items,
    live_items,
    program_stack,
)
from meshwright.program.serving.iteration_shape import IterationLoad, IterationShape
from meshwright.program.serving.iteration_states import replica_states
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.stage_layers import layers_of_stages, served_layers
from meshwright.program.serving.storage_formats import StorageFormats
from meshwright.schedules.action import Action
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.insert_messages import insert_messages

NO_CACHES: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A replica of a pool: its model, degrees (whole numbers), formats, and tokens of a block of the cache."""

    model: ModelGraph
    degrees: ReplicaDegrees
    formats: StorageFormats
    block_tokens: int = 1

    @classmethod
    def of_pool(cls, model: ModelGraph, pool: Pool, phase: Phase) -> "Replica":
        """Return a replica of a plan's pool in a phase that it computes."""
        return cls(
            model=model,
            degrees=ReplicaDegrees.of_layout(pool.layouts[phase]),
            formats=StorageFormats.of_pool(pool.formats, model.architecture),
            block_tokens=pool.batching.block_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterations:
    """Equal iterations of the micro-batches of a replica, ``count`` of each, one behind the other.

    ``caches``: how many sequences each rank of attention_dp holds, of all micro-batches, by their tokens.
    ``micro_batches`` None: as many as stages.
    """

    load: IterationLoad
    caches: Mapping[int, int] = field(default_factory=lambda: NO_CACHES)
    micro_batches: int | None = None
    count: int = 1


def iteration_program(replica: Replica, iterations: Iterations) -> Program:
    """Lower a legal replica's iterations."""
    model, degrees, formats = replica.model, replica.degrees, replica.formats
    shape = IterationShape(degrees=degrees, load=iterations.load, formats=formats, arch=model.architecture)
    once = replica_stages(model, int(degrees.pp))
    stages = tuple(
        replace(stage, index=stage.index + turn * len(once))
        for turn in range(iterations.count)
        for stage in once
    )
    part = _part(shape)
    nothing = (0,) * len(stages)
    return Program(
        blocks=model.blocks,
        hidden=model.architecture.hidden,
        table_shape=(model.architecture.vocab, model.architecture.hidden),
        stack=program_stack(),
        parts=ProgramParts((part,), (0,) * len(model.blocks)),
        stages=stages,
        micro_batches=iterations.micro_batches or len(once),
        states=replica_states(model, once, degrees, formats, iterations.caches, replica.block_tokens),
        block_items=_block_items(model, once, part, shape),
        bodies={
            (stage.index, "F"): pass_body(stage.blocks, "F", UnitExchanges(gathers={}, reductions={}))
            for stage in stages
        },
        collectives={},
        overlapped=frozenset(),
        activation_bytes=nothing,
        weight_gradient_bytes=nothing,
        offloaded_layers=nothing,
        offloaded_bytes=nothing,
        working_bytes=nothing,
        lists=_lists(stages, len(once), iterations.micro_batches or len(once)),
    )


def replica_stages(model: ModelGraph, pp: int) -> tuple[Stage, ...]:
    """Return the stages of one iteration: embedding first, head last, without layers of multi-token prediction."""
    layers, found, begin = served_layers(model), list[Stage](), 0
    for index, count in enumerate(layers_of_stages(len(layers), pp)):
        numbers = tuple(range(begin, begin + count))
        first = (model.chain[0][0],) if index == 0 else ()
        last = (model.chain[-1][0],) if index == pp - 1 else ()
        blocks = (*first, *(layers[at] for at in numbers), *last)
        found.append(Stage(index, index, blocks, numbers))
        begin += count
    return tuple(found)


def _part(shape: IterationShape) -> Part:
    """Return the meshes of a replica, in training's order of axes."""
    degrees = shape.degrees
    sizes = {"tp": degrees.tp, "cp": degrees.cp, "dp_shard": 1, "dp_replicate": degrees.attention_dp}
    ranks = degrees.tp * degrees.cp * degrees.attention_dp
    apart = ranks // (degrees.ep * degrees.etp)
    experts = {"etp": degrees.etp, "ep": degrees.ep, "edp_shard": 1, "edp_replicate": apart}
    message = ACTIVATION_BYTES * shape.arch.hidden * shape.rows / degrees.tp
    return Part(
        name="replica",
        grid=_grid(sizes, degrees),
        expert_grid=_grid(experts, degrees),
        shape=shape.local,
        mode=SERVING_MODE,
        sharding="none",
        message_bytes=round(float(message)),
    )


def _grid(sizes: Mapping[str, object], degrees: ReplicaDegrees) -> RankGrid:
    every = {axis: int(size) for axis, size in {**sizes, "pp": degrees.pp}.items()}  # type: ignore[call-overload]
    return RankGrid(every, tuple(every))


def _block_items(
    model: ModelGraph, stages: tuple[Stage, ...], part: Part, shape: IterationShape
) -> dict[tuple[int, PassKind], tuple[Item, ...]]:
    def members(axes: tuple[str, ...]) -> int:
        return part.mesh_with(axes).size(axes)

    used = dict.fromkeys(block for stage in stages for block in stage.blocks)
    return {(index, "F"): live_items(iteration_items(model.blocks[index], shape), members) for index in used}


def _lists(stages: tuple[Stage, ...], ranks: int, micro_batches: int) -> tuple[tuple[Action, ...], ...]:
    """Return each rank's passes, iteration by iteration and in each the micro-batches in order, with messages."""
    passes = [
        [Action("F", stage.index, m) for stage in stages if stage.rank == rank for m in range(micro_batches)]
        for rank in range(ranks)
    ]
    placement = [stage.rank for stage in stages]
    return tuple(map(tuple, insert_messages(passes, placement, StageChains(len(stages)))))
