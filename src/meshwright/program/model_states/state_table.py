"""Build the state table of a plan: one row per stage, block, part of its parameters and kind of state.

Parts are dense and expert parameters (on meshes of their own), frozen ones of either with a type of their own, and
those that every data-parallel rank trains for itself.

Blocks of one name and layout have equal states, whatever they run again in the backward pass: they share a row. The
states of matrices that Muon takes have a row of each stage (``hidden_matrices.py``).
What a rank holds of each: ``zero_sharding.py``.
"""

from collections import Counter, defaultdict
from dataclasses import replace

from meshwright.model.graph import ModelGraph
from meshwright.program.local_shape import LocalShape, Number
from meshwright.program.lowering.step_collectives import StepPlan
from meshwright.program.model_states.hidden_matrices import MATRICES, held_matrices, stage_matrices
from meshwright.program.model_states.state_elements import (
    DENSE_SHARD_AXES,
    EXPERT_SHARD_AXES,
    PARAMETER_CLASSES,
    Elements,
    ParameterClass,
    StateEntry,
    StateKind,
    bytes_per_element,
    state_kinds,
)
from meshwright.program.model_states.zero_sharding import SHARDED, held_elements, held_packed
from meshwright.program.program import Stage


def state_table(step: StepPlan, model: ModelGraph) -> tuple[StateEntry, ...]:
    """Every state of every stage, on each of that stage's ranks."""
    return tuple(entry for part in (*step.stages, *step.shares) for entry in _stage_rows(part, step, model))


def _stage_rows(stage: Stage, step: StepPlan, model: ModelGraph) -> list[StateEntry]:
    layers: dict[int, list[int]] = defaultdict(list)
    repeats = Counter[int]()
    first_named: dict[tuple[str, int], int] = {}
    layer_numbers = iter(stage.layers)
    for block in stage.blocks:
        like = first_named.setdefault((model.blocks[block].name, step.parts.of_blocks[block]), block)
        repeats[like] += 1
        layers[like] += [next(layer_numbers)] if model.blocks[block].kind == "layer" else []
    rows = []
    for block, numbers in layers.items():
        for kind in state_kinds(step.stack):
            for part in PARAMETER_CLASSES:
                row = _row(stage, block, repeats[block], tuple(numbers), kind, part, step, model)
                rows += [row] if row.elements else []
    return rows + _matrix_rows(stage, step, model)


def _matrix_rows(stage: Stage, step: StepPlan, model: ModelGraph) -> list[StateEntry]:
    """Return the states of the matrices that Muon takes: a row for the dense ones of a stage, one for experts'."""
    if not step.stack.optimizer.kind.of_matrices:
        return []
    matrices, of = stage_matrices((model.blocks[b] for b in stage.blocks), step.stack), step.parts.only
    held = held_matrices(matrices, of.sharding, of.shape, step.stack)
    sharded = "optimizer" in SHARDED[of.sharding]
    return [
        StateEntry(
            name=MATRICES[expert],
            kind="optimizer",
            stage=stage.index,
            repeat=1,
            elements=int(elements),
            bytes_per_element=step.stack.matrix_optimizer_bytes,
            layout=_layout(expert, sharded),
            layers=(),
        )
        for expert, elements in zip((False, True), held, strict=True)
        if elements
    ]


def _layout(expert: bool, sharded: bool) -> tuple[str, ...]:
    axes: tuple[str, ...] = ("ep", "etp") if expert else ("tp",)
    return axes + ((EXPERT_SHARD_AXES if expert else DENSE_SHARD_AXES) if sharded else ())


def _row(
    stage: Stage,
    block: int,
    repeat: int,
    layers: tuple[int, ...],
    kind: StateKind,
    part: ParameterClass,
    step: StepPlan,
    model: ModelGraph,
) -> StateEntry:
    of = step.parts.of(block)
    sharded = kind in SHARDED[of.sharding] and not part.own
    elements = ((step.optimizer_elements or step.elements) if kind == "optimizer" else step.elements)[block]
    trained = elements.of(kind)
    tensors = trained.expert_tensors if part.expert else trained.dense_tensors
    count, packed_bytes = _held(elements, kind, part, sharded, of.shape)
    return StateEntry(
        name=model.blocks[block].name + part.suffix,
        kind=kind,
        stage=stage.index,
        repeat=repeat,
        elements=int(count),
        bytes_per_element=bytes_per_element(kind, step.stack),
        layout=_layout(part.expert, sharded),
        layers=layers,
        scales=tensors * step.stack.scaled_moments if kind == "optimizer" else 0,
        packed_bytes=packed_bytes,
        part=step.parts.of_blocks[block],
    )


def _held(
    elements: Elements, kind: StateKind, part: ParameterClass, sharded: bool, shape: LocalShape
) -> tuple[Number, int | None]:
    """Return the elements of a part of a block that a rank holds, and its bytes if they are packed."""
    if part.own:
        return elements.of(kind).own, None
    if part.packed:
        packed = held_packed(elements.of(kind), sharded, shape)
        count, size = (
            (packed.expert, packed.expert_bytes) if part.expert else (packed.dense, packed.dense_bytes)
        )
        return count, int(size)
    held = held_elements(replace(elements.of(kind), own=0), "parameter", sharded, shape)
    return held.expert if part.expert else held.dense, None
