"""Outer SGD: anchor ← anchor − lr·Δ̄."""

from collections.abc import Mapping

import torch

from meshwright.plans.synchronisation.outer_optimizer import OuterSgd


def outer_sgd(
    options: OuterSgd,
    anchor: torch.Tensor,
    mean_change: torch.Tensor,
    moments: Mapping[str, torch.Tensor],
    number: int,
) -> None:
    """Take a step of SGD."""
    anchor.sub_(mean_change, alpha=options.lr)
