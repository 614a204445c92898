"""Bytes of the weights on one rank of a replica, by format.

Every matrix is cut over tp, those of experts over ep and etp; an element takes the bits of its format with its scales.
The embedding is on the first stage of a pipeline, the head on the last; a tied head has no table where they are one.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.model.graph import Block, ModelGraph
from meshwright.model.operators.operator_types import Operator
from meshwright.program.local_shape import Number
from meshwright.program.model_states.state_elements import embedding_names, parameter_elements
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.stage_layers import largest_stage
from meshwright.program.serving.storage_formats import StorageFormats


def block_weight_bytes(
    block: Block,
    model: ModelGraph,
    degrees: ReplicaDegrees,
    formats: StorageFormats,
    left_out: frozenset[str] = frozenset(),
) -> Number:
    """Return the bytes of one block's weights on a rank, without the parameters ``left_out``."""
    total: Number = 0.0
    for op in block.operators:
        elements = operator_elements(op, degrees, left_out)
        total = total + elements * formats.bits(op, model.architecture) / 8
    return total


def operator_elements(
    op: Operator, degrees: ReplicaDegrees, left_out: frozenset[str] = frozenset()
) -> Number:
    """Return the elements of one operator's weights on a rank, without the parameters ``left_out``."""
    elements: Number = 0.0
    for parameter in op.parameters:
        if parameter.name not in left_out:
            elements = elements + parameter_elements(parameter, degrees.shape, expert=op.place == "expert")
    return elements


def rank_weight_bytes(model: ModelGraph, degrees: ReplicaDegrees, formats: StorageFormats) -> NDArray[Any]:
    """Return the bytes of weights on the rank that has most."""

    def of_block(block: Block) -> Number:
        return block_weight_bytes(block, model, degrees, formats)

    embedding, head = of_block(model.embed), of_block(model.head)
    tables = embedding_names(model.blocks)
    beside_tables = block_weight_bytes(model.head, model, degrees, formats, tables)
    head = np.where(np.asarray(degrees.pp) > 1, head, beside_tables)
    return largest_stage(model, degrees.pp, of_block, (embedding, head))
