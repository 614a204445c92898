"""Outer Nesterov momentum (DiLoCo, arXiv 2311.08105): m ← β·m + Δ̄; anchor ← anchor − lr·(Δ̄ + β·m)."""

from collections.abc import Mapping

import torch

from meshwright.plans.synchronisation.outer_optimizer import OuterNesterov
from meshwright.runtime.synchronisation.outer.outer_rule import FIRST


def outer_nesterov(
    options: OuterNesterov,
    anchor: torch.Tensor,
    mean_change: torch.Tensor,
    moments: Mapping[str, torch.Tensor],
    number: int,
) -> None:
    """Take a step with Nesterov's momentum."""
    momentum = moments[FIRST].mul_(options.momentum).add_(mean_change)
    anchor.sub_(mean_change, alpha=options.lr).sub_(momentum, alpha=options.lr * options.momentum)
