"""The interfaces of rules that combine gradients of replicas, one row each.

All rules are homogeneous: rows that are c times as large have a result that is c times as large.
"""

from typing import Any, Protocol

import torch


class ElementRule(Protocol):
    """A rule that combines each element by itself; ``options`` are those of the plan, None without any."""

    def __call__(self, options: Any, rows: torch.Tensor) -> torch.Tensor:
        """Return the combination (element) of rows (replica, element)."""


class WeightRule(Protocol):
    """A rule whose result is a weighted sum of rows, by weights that follow from the products of whole rows."""

    def __call__(self, options: Any, products: torch.Tensor) -> torch.Tensor:
        """Return the weight of each row (replica) from the products of rows (replica, replica), in fp64."""
