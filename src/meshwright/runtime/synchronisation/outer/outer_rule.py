"""The interface of outer optimizers, which move an anchor by the mean change of the replicas' parameters."""

from collections.abc import Mapping
from typing import Any, Protocol

import torch

FIRST, SECOND = "outer_first", "outer_second"
"""The keys of moments, as ``plans/synchronisation/outer_optimizer.py`` names them."""


class OuterRule(Protocol):
    """A step of an outer optimizer on one tensor, or on a flat part of some, in place.

    ``options`` are those of the plan. ``mean_change`` is anchor − mean of the parameters, and stays. ``moments``
    start from zeros; ``number`` counts the steps from 1.
    """

    def __call__(
        self,
        options: Any,
        anchor: torch.Tensor,
        mean_change: torch.Tensor,
        moments: Mapping[str, torch.Tensor],
        number: int,
    ) -> None:
        """Update the anchor and the moments."""
