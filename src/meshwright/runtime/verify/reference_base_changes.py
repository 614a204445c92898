"""The reference of HD-PiSSA in one process: the pairs of every data-parallel rank, and their changes of the base.

Pairs of all ranks are stacked along their rank. Each rank's loss is that of its own sequences under its own pairs; the
gradients of their sum are those that each rank computes for itself. After a step W += B′·A′ − B·A of the stack.
"""

from collections.abc import Mapping

import torch

from meshwright.model.graph import ModelGraph
from meshwright.model.named_tensors import adapted_matrices
from meshwright.program.model_states.base_changes import CHANGE_AXES
from meshwright.program.program import Program
from meshwright.runtime.batch.batch_sharding import sequence_indices

Tensors = Mapping[str, torch.Tensor]


def own_products(model: ModelGraph, tensors: Tensors) -> dict[str, torch.Tensor]:
    """Return B·A of each matrix that has pairs of each data-parallel rank, by the name of the matrix."""
    return {
        f"{unit}.{matrix.name}.weight": (
            tensors[f"{unit}.{matrix.up}"] @ tensors[f"{unit}.{matrix.down}"]
        ).detach()
        for unit, op, matrix in adapted_matrices(model)
        if op.of_each_replica
    }


def changed_base(model: ModelGraph, tensors: Tensors, before: Tensors) -> dict[str, torch.Tensor]:
    """Return the matrices after a step, whose products were ``before``."""
    return {name: tensors[name] + new - before[name] for name, new in own_products(model, tensors).items()}


def replica_parts(program: Program, model: ModelGraph, tensors: Tensors) -> list[tuple[Tensors, slice]]:
    """Return the tensors and the sequences of each data-parallel rank; none if all train the same adapters."""
    pairs = {
        f"{unit}.{parameter.name}": (op.rank_dim(parameter.name), op.rank)
        for unit, op, _ in adapted_matrices(model)
        if op.of_each_replica
        for parameter in op.parameters
    }
    if not pairs:
        return []
    parts: list[tuple[Tensors, slice]] = []
    for replica, rank in enumerate(program.parts.only.grid.group_of(0, CHANGE_AXES)):
        own = {name: tensors[name].narrow(dim, replica * size, size) for name, (dim, size) in pairs.items()}
        rows = [row for of in sequence_indices(program, program.parts.only, rank) for row in of]
        parts.append(({**tensors, **own}, slice(rows[0], rows[-1] + 1)))
    return parts
