"""Build the state table of a plan: one row per stage, block, mesh (dense or expert) and kind of state.

Blocks of one name have equal states, whatever they run again in the backward pass: they share a row.
What a rank holds of each: ``zero_sharding.py``.
"""

from collections import defaultdict

from meshwright.model.graph import ModelGraph
from meshwright.program.lowering.step_collectives import StepPlan
from meshwright.program.model_states.state_elements import (
    DENSE_SHARD_AXES,
    EXPERT_SHARD_AXES,
    STATE_KINDS,
    StateEntry,
    StateKind,
    bytes_per_element,
)
from meshwright.program.model_states.zero_sharding import SHARDED, held_elements
from meshwright.program.program import Stage


def state_table(step: StepPlan, model: ModelGraph) -> tuple[StateEntry, ...]:
    """Every state of every stage, on each of that stage's ranks."""
    return tuple(entry for part in (*step.stages, *step.shares) for entry in _stage_rows(part, step, model))


def _stage_rows(stage: Stage, step: StepPlan, model: ModelGraph) -> list[StateEntry]:
    layers: dict[int, list[int]] = defaultdict(list)
    first_named: dict[str, int] = {}
    layer_numbers = iter(stage.layers)
    for block in stage.blocks:
        like = first_named.setdefault(model.blocks[block].name, block)
        layers[like] += [next(layer_numbers)] if model.blocks[block].kind == "layer" else []
    rows = []
    for block, numbers in layers.items():
        for kind in STATE_KINDS:
            for expert in (False, True):
                row = _row(stage, block, tuple(numbers), kind, expert, step, model)
                rows += [row] if row.elements else []
    return rows


def _row(
    stage: Stage,
    block: int,
    layers: tuple[int, ...],
    kind: StateKind,
    expert: bool,
    step: StepPlan,
    model: ModelGraph,
) -> StateEntry:
    sharded = kind in SHARDED[step.sharding]
    trained = step.elements[block].of(kind)
    tensors = trained.expert_tensors if expert else trained.dense_tensors
    held = held_elements(step.elements[block], kind, sharded, step.shape)
    axes: tuple[str, ...] = ("ep", "etp") if expert else ("tp",)
    if sharded:
        axes += EXPERT_SHARD_AXES if expert else DENSE_SHARD_AXES
    return StateEntry(
        name=model.blocks[block].name + (".experts" if expert else ""),
        kind=kind,
        stage=stage.index,
        repeat=max(1, len(layers)),
        elements=int(held.expert if expert else held.dense),
        bytes_per_element=bytes_per_element(kind, step.stack),
        layout=axes,
        layers=layers,
        scales=tensors * step.stack.scaled_moments if kind == "optimizer" else 0,
    )
