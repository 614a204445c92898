"""Lion (Chen et al., arXiv 2302.06675): p ← (1 − lr·λ)p − lr·sign(β₁m + (1−β₁)g), m ← β₂m + (1−β₂)g."""

from collections.abc import Mapping
from typing import cast

from meshwright.runtime.state.update_rules.update_rule import Parts, StepValues
from meshwright.workload.optimizers.optimizer_kind import FIRST


def lion(parameters: Parts, gradients: Parts, moments: Mapping[str, Parts], step: StepValues) -> None:
    """Take a step of Lion."""
    beta1, beta2 = cast(tuple[float, float], step.options["betas"])
    for p, g, m in zip(parameters, gradients, moments[FIRST], strict=True):
        direction = m.lerp(g, 1 - beta1).sign_()
        p.mul_(1 - step.lr * step.weight_decay).add_(direction, alpha=-step.lr)
        m.lerp_(g, 1 - beta2)
