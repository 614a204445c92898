"""Seconds of adding the changes of all adapters to the base after a step (HD-PiSSA).

Besides the gather (``program/model_states/base_changes.py``) there is for each target matrix one product of (outputs,
2·K·rank) with (2·K·rank, inputs) that adds to the part of the base which a rank holds. Nothing of it overlaps.
"""

from collections.abc import Iterable

from meshwright.cost.operators.kernel_and_collective_times import BYTES_16, HardwareTimes
from meshwright.model.graph import Block
from meshwright.model.operators.operator_types import LowRank
from meshwright.program.local_shape import LocalShape, Number
from meshwright.program.model_states.base_changes import BEFORE_AND_AFTER


def change_seconds(
    blocks: Iterable[Block], ranks: Number, gathered: bool, shape: LocalShape, forms: HardwareTimes
) -> Number:
    """Seconds of the products of a stage's blocks. ``ranks`` train adapters; ``gathered``: the base is cut."""
    seconds: Number = 0.0
    for block in blocks:
        for op in block.operators:
            if isinstance(op, LowRank) and op.of_each_replica:
                inputs = op.inputs / (shape.tp if op.split == "row" else 1)
                for matrix in op.matrices:
                    rows = matrix.outputs / (shape.tp if op.split == "column" else 1)
                    rows = rows / (shape.shard if gathered else 1)
                    width = BEFORE_AND_AFTER * ranks * op.rank
                    seconds = seconds + forms.gemm(rows, width, inputs, BYTES_16 * rows * inputs)
    return seconds
