"""Quasi-hyperbolic AdamW, as ``workload/optimizers/qh_adamw.py`` has it.

m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g², p ← (1 − lr·λ)p − lr·((1−ω₁)m̂ + ω₁g)/(√((1−ω₂)v̂ + ω₂g²) + ε), with
m̂ = m/(1−β₁ᵗ) and v̂ = v/(1−β₂ᵗ).
"""

from collections.abc import Mapping
from typing import cast

from meshwright.runtime.state.update_rules.update_rule import Parts, StepValues
from meshwright.workload.optimizers.optimizer_kind import FIRST, SECOND


def qh_adamw(parameters: Parts, gradients: Parts, moments: Mapping[str, Parts], step: StepValues) -> None:
    """Take a step of quasi-hyperbolic AdamW."""
    beta1, beta2 = cast(tuple[float, float], step.options["betas"])
    omega1, omega2 = cast(tuple[float, float], step.options["omega"])
    epsilon = cast(float, step.options["epsilon"])
    first, second = (1 - omega1) / (1 - beta1**step.number), (1 - omega2) / (1 - beta2**step.number)
    for p, g, m, v in zip(parameters, gradients, moments[FIRST], moments[SECOND], strict=True):
        m.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        direction = m.mul(first).add_(g, alpha=omega1)
        root = v.mul(second).addcmul_(g, g, value=omega2).sqrt_().add_(epsilon)
        p.mul_(1 - step.lr * step.weight_decay).addcdiv_(direction, root, value=-step.lr)
