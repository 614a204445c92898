"""Outer optimizers of ``synchronise``: one file each."""

from collections.abc import Mapping

import torch

from meshwright.plans.synchronisation.outer_optimizer import Outer
from meshwright.runtime.synchronisation.outer.outer_adam import outer_adam
from meshwright.runtime.synchronisation.outer.outer_momentum import outer_momentum
from meshwright.runtime.synchronisation.outer.outer_nesterov import outer_nesterov
from meshwright.runtime.synchronisation.outer.outer_rule import OuterRule
from meshwright.runtime.synchronisation.outer.outer_sgd import outer_sgd

OUTERS: Mapping[str, OuterRule] = {
    "sgd": outer_sgd,
    "momentum": outer_momentum,
    "nesterov": outer_nesterov,
    "adam": outer_adam,
}
"""The rules by the names of ``plans/synchronisation/outer_optimizer.py``."""


def update_anchor(
    outer: Outer | None,
    anchor: torch.Tensor,
    mean_change: torch.Tensor,
    moments: Mapping[str, torch.Tensor],
    number: int,
) -> None:
    """Move an anchor by Δ̄ = anchor − mean of the replicas, with an outer optimizer or, without one, to the mean.

    ``number`` counts the steps from 1; ``moments`` are those that ``outer.moments`` names.
    """
    if outer is None:
        anchor.sub_(mean_change)
    else:
        OUTERS[outer.name](getattr(outer, outer.name), anchor, mean_change, moments, number)
