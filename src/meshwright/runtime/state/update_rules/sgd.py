"""Stochastic gradient descent as ``torch.optim.SGD``: weight decay is part of the gradient.

g ← g + λp, m ← μm + g, p ← p − lr·m, or p ← p − lr·(g + μm) with Nesterov's momentum; without momentum p ← p − lr·g.
"""

from collections.abc import Mapping
from typing import cast

from meshwright.runtime.state.update_rules.update_rule import Parts, StepValues
from meshwright.workload.optimizers.optimizer_kind import FIRST


def sgd(parameters: Parts, gradients: Parts, moments: Mapping[str, Parts], step: StepValues) -> None:
    """Take a step of SGD."""
    momentum = cast(float, step.options["momentum"])
    for number, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
        change = g.add(p, alpha=step.weight_decay) if step.weight_decay else g
        if momentum:
            buffer = moments[FIRST][number].mul_(momentum).add_(change)
            change = change.add(buffer, alpha=momentum) if step.options["nesterov"] else buffer
        p.add_(change, alpha=-step.lr)
