"""The load of experts: rows of all ranks and of the busiest one, from a workload's routing.

Experts lie on the ep ranks as the model has them, or in the order that a plan says, as many on each. A step waits for
the busiest rank of each layer: what counts is its rows over those of the mean rank, in the mean of layers. Of s it is
the mean over ``DRAWN`` orders of experts, drawn once for all, whatever a plan says, for who is popular lies anywhere;
no expert is chosen by a token twice, so none has more than one in k of all choices.

With a capacity an expert that is chosen as often as is said gets no more rows than it has places in a scope of T
tokens; where nothing is said all experts are chosen alike. Padded experts get as many rows as they have places.
Ignored: that one scope differs from the next, so that some are dropped even where there are places enough in the mean.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.model.architecture import Architecture
from meshwright.plans.forms.short import ExpertOrder
from meshwright.workload.expert_routing import Counts, Pairs
from meshwright.workload.workload import Workload

Floats = NDArray[np.float64]

DRAWN = 512
SEED = 0


@dataclass(frozen=True, slots=True)
class ExpertLoad:
    """Rows of experts: ``sent`` are those of all ranks over what tokens chose, ``busiest`` the busiest's over the mean.

    ``busiest`` is None where nothing is said of it; ``most`` is what it could be at most.
    """

    sent: float = 1.0
    busiest: float | None = None
    most: float = np.inf


def expert_load(
    workload: Workload, arch: Architecture, ep: int, scope_tokens: int, order: ExpertOrder | None = None
) -> ExpertLoad:
    """Return the load of ``ep`` ranks of experts with places for each ``scope_tokens`` tokens."""
    routing, capacity, moe = workload.routing, workload.capacity, arch.moe
    if moe is None:
        return ExpertLoad()
    room = np.inf
    if capacity is not None:
        places = capacity.places(scope_tokens, moe.experts, moe.experts_per_token)
        room = places * moe.experts / (scope_tokens * moe.experts_per_token)
    value = "balanced" if routing is None else routing.value
    if capacity is not None and capacity.pad:
        return ExpertLoad(room, 1.0, 1.0)
    sent, busy = min(1.0, room), 1.0
    if value != "balanced":
        sent, busy = _load(value, ep, moe.experts, moe.experts_per_token, order, room)
    return ExpertLoad(sent, None if routing is None else busy, room / sent)


def scope_tokens(workload: Workload, micro_batch: Any, cut: Any) -> Any:
    """Tokens of a scope of the capacity, where ``cut`` ranks have the sequences of a micro-batch; 1 without a capacity.

    Numbers, or arrays of them.
    """
    capacity, whole = workload.capacity, workload.seq_len * micro_batch
    return 1 if capacity is None else capacity.scope_tokens(whole // cut, workload.seq_len, micro_batch)


@cache
def _load(
    value: float | Counts | Pairs, ep: int, experts: int, chosen: int, order: ExpertOrder | None, room: float
) -> tuple[float, float]:
    """Return the fraction of choices that is kept, and the busiest rank's rows over the mean rank's."""
    counts = value.counts if isinstance(value, Pairs) else value
    shares = (
        rows_in_rank_order(np.array(counts), order)
        if isinstance(counts, tuple)
        else _drawn(counts, experts, chosen)
    )
    shares = np.minimum(shares / shares.mean(1, keepdims=True), room)
    ranks = shares.reshape(len(shares), ep, -1).mean(2)
    return float(ranks.mean()), float(ranks.max(1).mean() / ranks.mean())


def rows_in_rank_order(rows: Floats, order: ExpertOrder | None) -> Floats:
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
