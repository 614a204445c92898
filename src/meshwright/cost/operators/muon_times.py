"""Seconds of Muon's orthogonalisation on the rank with the most work.

Each Newton–Schulz step of an m × n matrix is three products, (m, n) × (n, m), (m, m) × (m, m) and (m, m) × (m, n), in
bf16 at the rate of other matrix products, 4·m²·n + 2·m³ FLOPs. What tensor parallelism cuts is gathered once
(``duplicated``) or has its Gram matrix summed in every step (``distributed``), in bf16; parameters under zero3 are
gathered over the shard axes, here as one gather of a stage (``program/model_states/matrix_exchanges.py``). Nothing of
it overlaps. Momentum, scaling and the weight's update are the passes of
``optimizer_seconds``.
"""

from dataclasses import replace

from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes
from meshwright.cost.operators.pass_prices import Mesh, collective_seconds
from meshwright.program.local_shape import LocalShape, Number
from meshwright.program.model_states.hidden_matrices import (
    Matrices,
    gathered,
    held_matrices,
    stepped,
)
from meshwright.program.model_states.matrix_exchanges import exchange_of, gather_of_unit
from meshwright.stack.stack import Stack
from meshwright.workload.optimizers.muon import DISTRIBUTED


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
        exchanged = exchange_of(matrix, mode, shape)
        seconds = 0.0 if exchanged is None else collective_seconds(exchanged, mesh, forms)
        times = steps if mode == DISTRIBUTED else 1
        total = total + number * (steps * products + times * seconds)
    if gathered(sharding):
        held = held_matrices(matrices, "none", shape, stack)
        for expert, elements in zip((False, True), held, strict=True):
            total = total + collective_seconds(gather_of_unit(elements, expert=expert), mesh, forms)
    return total
