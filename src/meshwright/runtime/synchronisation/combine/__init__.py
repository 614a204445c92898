"""Rules that combine gradients of replicas: one file each, by the names of ``plans/synchronisation/combination.py``."""

from collections.abc import Mapping

import torch

from meshwright.runtime.synchronisation.combine.flag import flag
from meshwright.runtime.synchronisation.combine.krum import krum
from meshwright.runtime.synchronisation.combine.median import median
from meshwright.runtime.synchronisation.combine.rules import ElementRule, WeightRule
from meshwright.runtime.synchronisation.combine.trimmed_mean import trimmed_mean

ELEMENT_RULES: Mapping[str, ElementRule] = {"median": median, "trimmed_mean": trimmed_mean}
WEIGHT_RULES: Mapping[str, WeightRule] = {"krum": krum, "flag": flag}


def products_of(rows: torch.Tensor) -> torch.Tensor:
    """Return the products of rows (replica, element) with each other, in fp64."""
    total = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    for part in rows.split(COLUMNS, 1):
        total += part @ part.T
    return total


def weighted_sum(rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the weighted sum of rows; one of weight 0 counts for nothing, whatever is in it."""
    used = weights.nonzero().flatten().tolist()
    total = torch.zeros_like(rows[0])
    for row in used:
        total.add_(rows[row], alpha=float(weights[row]))
    return total


COLUMNS = 1 << 16
"""Elements of rows that are multiplied at once; sums of these products are in fp64."""
