"""Outer momentum (SlowMo, arXiv 1910.00643; CO2, arXiv 2401.16265).

m ← β·m + Δ̄/Λ, cut to ±clip; anchor ← anchor − lr·m. SlowMo divides Δ̄ by the inner learning rate and multiplies the step
by it, so with a constant rate its α is ``lr``.

Λ, with ``staleness``, is CO2's penalty of the gap between the parameters at which Δ̄ was formed and those that it moves.
Assumed, as the gap-aware penalty of arXiv 1909.10802, element by element: Λ = 1 + |lr·m|/(|lr·m| + |Δ̄|), where lr·m is
the last outer step, the gap. It is from 1, without a gap, to 2, needs no other state, and no sum over a cut tensor.
"""

from collections.abc import Mapping

import torch

from meshwright.plans.synchronisation.outer_optimizer import OuterMomentum
from meshwright.runtime.synchronisation.outer.outer_rule import FIRST


def outer_momentum(
    options: OuterMomentum,
    anchor: torch.Tensor,
    mean_change: torch.Tensor,
    moments: Mapping[str, torch.Tensor],
    number: int,
) -> None:
    """Take a step with momentum."""
    momentum = moments[FIRST]
    change = mean_change
    if options.staleness:
        change = mean_change / staleness_penalty(momentum * options.lr, mean_change)
    momentum.mul_(options.momentum).add_(change)
    if options.clip is not None:
        momentum.clamp_(-options.clip, options.clip)
    anchor.sub_(momentum, alpha=options.lr)


def staleness_penalty(gap: torch.Tensor, mean_change: torch.Tensor) -> torch.Tensor:
    """Return Λ of each element, 1 where neither the anchor moved nor the mean."""
    gap = gap.abs()
    both = gap + mean_change.abs()
    return 1 + gap / torch.where(both == 0, 1, both)
