"""Seconds of Muon's orthogonalisation on the rank with the most work.

Each Newton–Schulz step of an m × n matrix is three products, (m, n) × (n, m), (m, m) × (m, m) and (m, m) × (m, n), in
bf16 at the rate of other matrix products, 4·m²·n + 2·m³ FLOPs. What tensor parallelism cuts is gathered once
(``duplicated``) or has its Gram matrix summed in every step (``distributed``), in bf16; parameters under zero3 are
gathered over the shard axes. Nothing of it overlaps. Momentum, scaling and the weight's update are the passes of
``optimizer_seconds``.
"""

from dataclasses import replace

from meshwright.cost.operators.kernel_and_collective_times import BYTES_16, HardwareTimes
from meshwright.cost.operators.pass_prices import Mesh, collective_seconds
from meshwright.program.local_shape import LocalShape, Number
from meshwright.program.model_states.hidden_matrices import (
    DISTRIBUTED,
    DUPLICATED,
    HiddenMatrix,
    Matrices,
    gathered,
    held_matrices,
    stepped,
)
from meshwright.program.model_states.state_elements import DENSE_SHARD_AXES, EXPERT_SHARD_AXES
from meshwright.program.pass_items import Collective
from meshwright.stack.stack import Stack


def orthogonalisation_seconds(
    matrices: Matrices, sharding: str, shape: LocalShape, stack: Stack, mesh: Mesh, forms: HardwareTimes
) -> Number:
    """Seconds for the matrices of one stage; ``sharding`` is the effective one."""
    if not matrices:
        return 0.0
    sixteen = replace(forms, precision="bf16", recipe=None)
    steps, mode = stack.optimizer.steps, stack.optimizer.tensor
    total: Number = 0.0
    for matrix, number in stepped(matrices, sharding, shape, stack).items():
        m, n = matrix.sides(shape, mode)
        products = sixteen.gemm(m, n, m) + sixteen.gemm(m, m, m) + sixteen.gemm(m, m, n)
        exchanged = _exchanged(matrix, mode, m)
        seconds = 0.0 if exchanged is None else collective_seconds(exchanged, mesh, forms)
        times = steps if mode == DISTRIBUTED else 1
        total = total + number * (steps * products + times * seconds)
    if gathered(sharding):
        for axes, elements in zip(
            (DENSE_SHARD_AXES, EXPERT_SHARD_AXES),
            held_matrices(matrices, "none", shape, stack),
            strict=True,
        ):
            gather = Collective("all-gather", axes, BYTES_16 * elements, "muon")
            total = total + collective_seconds(gather, mesh, forms)
    return total


def _exchanged(matrix: HiddenMatrix, mode: str, side: Number) -> Collective | None:
    """Return what the ranks of tensor parallelism exchange for one matrix, in every step if it is distributed."""
    axes = ("etp",) if matrix.expert else ("tp",)
    if matrix.cut is None:
        return None
    if mode == DUPLICATED:
        outputs, inputs = matrix.whole()
        return Collective("all-gather", axes, BYTES_16 * outputs * inputs, "muon")
    if mode == DISTRIBUTED:
        return Collective("all-reduce", axes, BYTES_16 * side * side, "muon")
    return None
