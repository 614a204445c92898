"""Muon: momentum of hidden matrices, orthogonalised by Newton–Schulz steps (Jordan et al. 2024; arXiv 2502.16982).

Each step of an m × n matrix X, m ≤ n, is A = XXᵀ, X ← aX + (bA + cA²)X: 4·m²·n + 2·m³ FLOPs. The result is scaled
by a factor of its r outputs and c inputs:

===============  ====================
scale            factor
===============  ====================
shape            √max(1, r/c)
spectral         √max(r, c)
match-rms-adamw  0.2·√max(r, c)
unit-rms         √(r/c)
===============  ====================

``tensor`` says what happens to a matrix that tensor parallelism cuts: every block is orthogonalised by itself
(``blockwise``), the whole is gathered (``duplicated``), or Gram matrices of the blocks are summed (``distributed``).
Embedding, head, norms and biases have another optimizer, ``others``.
"""

from meshwright.workload.optimizers.optimizer_kind import (
    FIRST,
    OptimizerKind,
    Option,
    fraction,
    not_negative,
    one_name,
    switch,
)

MAX_STEPS = 100
SCALES = ("shape", "spectral", "match-rms-adamw", "unit-rms")
TENSOR_MODES = BLOCKWISE, DUPLICATED, DISTRIBUTED = ("blockwise", "duplicated", "distributed")

MUON = OptimizerKind(
    options={
        "steps": Option(
            5,
            f"must be a whole number from 1 to {MAX_STEPS}",
            lambda value: isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_STEPS,
            "e.g. 5",
        ),
        "momentum": fraction(0.95),
        "nesterov": switch(True),
        "scale": one_name(None, *SCALES),
        "tensor": one_name("blockwise", *TENSOR_MODES),
        "others": one_name("adamw", "adamw", "lion", "sgd"),
        "weight_decay": not_negative(0.1),
    },
    moments=lambda _: (FIRST,),
    of_matrices=True,
)
