"""Rows of the busiest rank of experts, from what a workload says of how tokens choose them.

Experts lie on the ep ranks as the model has them, or in the order that a plan says, as many on each. A step waits for
the busiest rank of each layer: what counts is its rows over those of the mean rank, in the mean of layers. Of s it is
the mean over ``DRAWN`` orders of experts, drawn once for all, whatever a plan says, for who is popular lies anywhere;
no expert is chosen by a token twice, so none has more than one in k of all choices.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from meshwright.model.architecture import Architecture
from meshwright.plan.short import ExpertOrder
from meshwright.workload.routing import Counts, Pairs
from meshwright.workload.workload import Workload

Floats = NDArray[np.float64]

DRAWN = 512
SEED = 0


def busiest(
    workload: Workload, arch: Architecture, ep: int, order: ExpertOrder | None = None
) -> float | None:
    """Rows of the busiest of ``ep`` ranks over the mean rank's; None where nothing is said, or nobody chooses."""
    routing, moe = workload.routing, arch.moe
    if routing is None or moe is None:
        return None
    if routing.said == "balanced":
        return 1.0
    return _busiest(routing.said, ep, moe.experts, moe.experts_per_token, order)


@cache
def _busiest(
    said: float | Counts | Pairs, ep: int, experts: int, chosen: int, order: ExpertOrder | None
) -> float:
    counts = said.counts if isinstance(said, Pairs) else said
    shares = (
        in_order(np.array(counts), order) if isinstance(counts, tuple) else _drawn(counts, experts, chosen)
    )
    ranks = shares.reshape(len(shares), ep, -1).sum(2)
    return float((ranks.max(1) / ranks.mean(1)).mean())


def in_order(rows: Floats, order: ExpertOrder | None) -> Floats:
    """Numbers of experts, (layers or 1, experts), as ranks hold them."""
    if order is None:
        return rows
    held = np.array(order)
    layers = max(len(rows), len(held))
    return np.take_along_axis(
        np.repeat(rows, layers // len(rows), 0), np.repeat(held, layers // len(held), 0), 1
    )


def _drawn(skew: float, experts: int, chosen: int) -> Floats:
    """Popularity in so many orders of experts: (orders, experts)."""
    falling = popularity(skew, experts, chosen)
    return np.random.default_rng(SEED).permuted(np.tile(falling, (DRAWN, 1)), axis=1)


def popularity(skew: float, experts: int, chosen: int) -> Floats:
    """Choices of a token that fall on each expert in the mean, the most popular first; none above 1: (experts,)."""
    weights = np.arange(1, experts + 1, dtype=np.float64) ** -skew
    result, full = np.ones(experts), 0
    while full < chosen:
        result[full:] = (chosen - full) * weights[full:] / weights[full:].sum()
        over = int((result[full:] > 1).sum())
        if not over:
            break
        result[full : full + over], full = 1.0, full + over
    return result
