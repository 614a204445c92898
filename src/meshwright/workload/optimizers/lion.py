"""Lion: the sign of a momentum, one moment (Chen et al., arXiv 2302.06675)."""

from meshwright.workload.optimizers.optimizer_kind import FIRST, OptimizerKind, betas, not_negative

LION = OptimizerKind(
    options={"betas": betas(0.9, 0.99), "weight_decay": not_negative(0.1)},
    moments=lambda _: (FIRST,),
)
