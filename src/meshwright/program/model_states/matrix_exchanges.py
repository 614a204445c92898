"""Exchanges of Muon's step: parts of matrices over tensor parallelism, and whole units where parameters are cut.

A matrix that tensor parallelism cuts is gathered once (``duplicated``), or its Gram matrix is summed in every step of
the orthogonalisation (``distributed``). Where ZeRO cuts parameters too, each unit's matrices are gathered over the
shard axes. All of it is in bf16. The orthogonalisation itself: ``hidden_matrices.py``.
"""

from collections.abc import Iterator, Sequence

from meshwright.model.graph import Block
from meshwright.program.local_shape import LocalShape, Mode, Number
from meshwright.program.model_states.hidden_matrices import (
    FIRST,
    HiddenMatrix,
    gathered,
    held_matrices,
    stage_matrices,
    stepped,
)
from meshwright.program.model_states.state_elements import DENSE_SHARD_AXES, EXPERT_SHARD_AXES
from meshwright.program.pass_items import Collective
from meshwright.stack.stack import Stack
from meshwright.workload.optimizers.muon import DISTRIBUTED, DUPLICATED

MATRIX_BYTES = 2
"""Bytes of an element of a matrix that is gathered or summed."""


def exchange_of(matrix: HiddenMatrix, mode: str, shape: LocalShape) -> Collective | None:
    """Return what the ranks of tensor parallelism exchange for one matrix, in every step if it is distributed."""
    axes = ("etp",) if matrix.expert else ("tp",)
    if matrix.cut is None:
        return None
    if mode == DUPLICATED:
        outputs, inputs = matrix.whole()
        return Collective("all-gather", axes, MATRIX_BYTES * outputs * inputs, "muon")
    if mode == DISTRIBUTED:
        side, _ = matrix.sides(shape, mode)
        return Collective("all-reduce", axes, MATRIX_BYTES * side * side, "muon")
    return None


def gather_of_unit(elements: Number, *, expert: bool) -> Collective:
    """Return the gather of a unit's matrices, of which each rank has a part."""
    return Collective(
        "all-gather", EXPERT_SHARD_AXES if expert else DENSE_SHARD_AXES, MATRIX_BYTES * elements, "muon"
    )


def matrix_units(blocks: Sequence[Block], mode: Mode) -> list[Sequence[Block]]:
    """Return the blocks of a stage by unit: one by one where they are gathered so."""
    return [[block] for block in blocks] if mode.gather == "per-layer" else [blocks]


def step_exchanges(
    units: Sequence[Sequence[Block]],
    sharding: str,
    shape: LocalShape,
    stack: Stack,
    parts: tuple[int, int] = FIRST,
) -> Iterator[Collective]:
    """Yield the exchanges of a rank's optimizer step for the blocks of a stage, unit by unit.

    ``sharding`` is the effective one. ``parts`` as in ``stepped``. Groups may have one member.
    """
    matrices = stage_matrices((block for unit in units for block in unit), stack)
    if not matrices:
        return
    mode = stack.optimizer.tensor
    for matrix, number in stepped(matrices, sharding, shape, stack, parts).items():
        item = exchange_of(matrix, mode, shape)
        times = stack.optimizer.steps if mode == DISTRIBUTED else 1
        yield from [item] * (int(number) * times) if item else ()
    for unit in units if gathered(sharding) else ():
        held = held_matrices(stage_matrices(unit, stack), "none", shape, stack)
        for expert, elements in zip((False, True), held, strict=True):
            if elements:
                yield gather_of_unit(elements, expert=expert)
