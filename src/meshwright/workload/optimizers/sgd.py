"""Stochastic gradient descent: one moment with momentum, none without it, as ``torch.optim.SGD``."""

from meshwright.workload.optimizers.optimizer_kind import (
    FIRST,
    OptimizerKind,
    fraction,
    not_negative,
    switch,
)

SGD = OptimizerKind(
    options={"momentum": fraction(0.0), "nesterov": switch(False), "weight_decay": not_negative(0.0)},
    moments=lambda options: (FIRST,) if options["momentum"] else (),
)
