"""Describe the parts of a Program, and what moves between them, as plain data for ``describe --long``."""

from collections.abc import Iterator, Sequence
from itertools import islice

from meshwright.model.graph import ENCODER_KINDS
from meshwright.program.program import Program, Stage
from meshwright.program.program_parts import Part
from meshwright.program.reshard import Reshard

Row = dict[str, object]


def describe_parts(program: Program) -> list[Row]:
    """Return a row for each layout on each pipeline rank: its blocks, ranks, meshes, sequences and sharding."""
    rows: list[Row] = []
    for pipeline_rank in range(program.pipeline_ranks):
        names: dict[int, list[str | int]] = {}
        for stage in program.stages_of(pipeline_rank):
            for block, name in _named_blocks(program, stage):
                of_part = names.setdefault(program.parts.of_blocks[block], [])
                of_part += [] if of_part and of_part[-1] == name else [name]
        ranks = program.parts.members(pipeline_rank)
        for index, held in names.items():
            part = program.parts[index]
            rows.append(
                {
                    "layout": part.name,
                    "pipeline_rank": pipeline_rank,
                    "blocks": _ranges(held),
                    "first_rank": ranks[0],
                    "ranks": len(ranks),
                    **_meshes(part),
                    "sequences_per_replica": part.shape.micro_batch,
                    "batch_share": list(part.batch_share) or None,
                    "sharding": part.sharding,
                }
            )
    return rows


def _meshes(part: Part) -> dict[str, dict[str, int]]:
    """Return the axes of more than one rank of both meshes, without pp."""
    meshes = {"mesh": part.grid.sizes, "expert_mesh": part.expert_grid.sizes if part.shape.ep > 1 else {}}
    return {
        name: {axis: size for axis, size in sizes.items() if size > 1 and axis != "pp"}
        for name, sizes in meshes.items()
    }


def describe_reshards(program: Program) -> list[Row]:
    """Return the changes of layout in the order of the model, with the bytes that a micro-batch moves.

    Bytes are those that all ranks of a pipeline rank send together.
    """
    return [
        {
            "before": str(before),
            "after": str(after),
            "from": program.parts[reshard.source].name,
            "to": program.parts[reshard.target].name,
            "from_pipeline_rank": reshard.source_rank,
            "to_pipeline_rank": reshard.target_rank,
            "forward_bytes": reshard.forward.total,
            "backward_bytes": reshard.backward.total,
        }
        for before, after, reshard in _reshards(program)
    ]


def _reshards(program: Program) -> Iterator[tuple[str | int, str | int, Reshard]]:
    """Yield the changes of layout, each with the names of the blocks that it is between."""
    last: str | int = ""
    for stage in program.stages:
        pending, blocks = program.reshards.get(stage.index), _named_blocks(program, stage)
        for segment in program.bodies[stage.index, "F"]:
            pending = segment.reshard or pending
            for _, name in islice(blocks, segment.count if segment.block is not None else 0):
                if pending is not None:
                    yield last, name, pending
                pending, last = None, name


def _named_blocks(program: Program, stage: Stage) -> Iterator[tuple[int, str | int]]:
    """Yield the blocks of a stage, each with its layer's number or its own name."""
    layers = iter(stage.layers)
    for block in stage.blocks:
        found = program.blocks[block]
        name = "encoder" if found.kind in ENCODER_KINDS else found.name
        yield block, next(layers, name) if found.kind == "layer" else name


def _ranges(names: Sequence[str | int]) -> str:
    """Return names with rows of layers as a plan writes them: ``embed, 0..15``."""
    texts: list[str] = []
    for place, name in enumerate(names):
        before, behind = (names[i] if 0 <= i < len(names) else None for i in (place - 1, place + 1))
        if not isinstance(name, int) or before != name - 1:
            texts.append(str(name))
        elif behind != name + 1:
            texts[-1] += f"..{name}"
    return ", ".join(texts)
