"""Quasi-hyperbolic AdamW: a mean of momentum and gradient (QHAdam, arXiv 1810.06801; MT-DAO, arXiv 2510.05361).

With AdamW's moments m̂ and v̂, corrected for their start, a step is

    p ← (1 − η·λ)·p − η·((1 − ω₁)·m̂ + ω₁·g) / (√((1 − ω₂)·v̂ + ω₂·g²) + ε)

so that ω = 0 is AdamW. The papers weigh the moments: their ν and MT-DAO's weight of the slow momentum (β₁ ≈ 0.999) are
1 − ω. MT-DAO's form with one momentum has the gradient as the fast term; forms with several momenta are left out.
The default ω is QHAdam's ν₁ = 0.7, ν₂ = 1; betas are AdamW's, which is assumed.
"""

from meshwright.workload.optimizers.optimizer_kind import (
    FIRST,
    SECOND,
    OptimizerKind,
    Option,
    betas,
    is_number,
    not_negative,
)

QH_ADAMW = OptimizerKind(
    options={
        "omega": Option(
            (0.3, 0.0),
            "must be two numbers from 0 to 1",
            lambda value: (
                isinstance(value, tuple)
                and len(value) == 2
                and all(is_number(w) and 0 <= w <= 1 for w in value)
            ),
            "e.g. [0.3, 0]",
        ),
        "betas": betas(0.9, 0.95),
        "epsilon": not_negative(1e-8),
        "weight_decay": not_negative(0.1),
    },
    moments=lambda _: (FIRST, SECOND),
)
