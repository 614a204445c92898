"""AdamW: two moments (Loshchilov and Hutter, arXiv 1711.05101)."""

from meshwright.workload.optimizers.optimizer_kind import FIRST, SECOND, OptimizerKind, betas, not_negative

ADAMW = OptimizerKind(
    options={"betas": betas(0.9, 0.95), "epsilon": not_negative(1e-8), "weight_decay": not_negative(0.1)},
    moments=lambda _: (FIRST, SECOND),
)
