"""Outer Adam (arXiv 1412.6980) without weight decay, on Δ̄ as the gradient.

m ← β₁m + (1 − β₁)Δ̄, v ← β₂v + (1 − β₂)Δ̄², anchor ← anchor − lr·(m/(1 − β₁ᵗ))/(√(v/(1 − β₂ᵗ)) + ε).
"""

from collections.abc import Mapping

import torch

from meshwright.plans.synchronisation.outer_optimizer import OuterAdam
from meshwright.runtime.synchronisation.outer.outer_rule import FIRST, SECOND


def outer_adam(
    options: OuterAdam,
    anchor: torch.Tensor,
    mean_change: torch.Tensor,
    moments: Mapping[str, torch.Tensor],
    number: int,
) -> None:
    """Take a step of Adam."""
    beta1, beta2 = options.betas
    first = moments[FIRST].lerp_(mean_change, 1 - beta1)
    second = moments[SECOND].mul_(beta2).addcmul_(mean_change, mean_change, value=1 - beta2)
    scale = (second / (1 - beta2**number)).sqrt_().add_(options.epsilon)
    anchor.addcdiv_(first, scale, value=-options.lr / (1 - beta1**number))
