"""Dispatch fanout from router counts: singles and pairs of experts, of each layer.

Of counts the choices of a token are shared out; of pairs it is also known how often it chooses two experts together.
Counts alone say nothing of that, so that tokens then reach as many parts as if all experts were chosen alike.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from meshwright.model.architecture import Experts
from meshwright.plans.forms.short import ExpertOrder
from meshwright.program.expert_dispatch.expert_load import Floats, rows_in_rank_order
from meshwright.program.expert_dispatch.hit_probability import hit_probability
from meshwright.workload.expert_routing import Counts, Pairs, Routing

Fanout = Callable[[float], float]
"""The mean number of so many equal parts of the experts that a token reaches; parts may be no whole number."""


class RouterCounts(NamedTuple):
    """Choices of a token that fall on each expert, (layers, experts), and on both of two, (layers, experts, experts),
    0 on the diagonal; None where nothing is known of pairs."""

    singles: Floats
    pairs: Floats | None


@lru_cache(maxsize=4)
def router_counts(value: Counts | Pairs, chosen: int) -> RouterCounts:
    """Return the router counts per token."""
    counts = np.array(value.counts if isinstance(value, Pairs) else value)
    tokens = counts.sum(1) / chosen
    singles = counts / tokens[:, None]
    if not isinstance(value, Pairs):
        return RouterCounts(singles, None)
    experts = value.experts
    tables = np.frombuffer(value.values).reshape(-1, experts, experts) / tokens[:, None, None]
    tables[:, np.arange(experts), np.arange(experts)] = 0
    return RouterCounts(singles, tables)


def fanout_from_counts(
    routing: Routing | None, moe: Experts | None, order: ExpertOrder | None
) -> Fanout | None:
    """Return the mean fanout over layers from pair counts; None without pairs."""
    if routing is None or moe is None or not isinstance(routing.value, Pairs):
        return None
    return _reached_by(routing.value, moe.experts_per_token, order)


@lru_cache(maxsize=16)
def _reached_by(value: Pairs, chosen: int, order: ExpertOrder | None) -> Fanout:
    found = router_counts(value, chosen)
    assert found.pairs is not None
    singles, experts = rows_in_rank_order(found.singles, order), value.experts
    rows = rows_in_rank_order(np.arange(experts, dtype=np.float64)[None], order).astype(np.int64)
    layers = np.arange(len(singles)) % len(found.pairs)
    tables = found.pairs[layers[:, None, None], rows[:, :, None], rows[:, None, :]]

    @lru_cache
    def reached(parts: float) -> float:
        count = int(parts)
        blocks = tables.reshape(len(tables), count, experts // count, count, experts // count)
        pairs = np.einsum("lpiqj,pq->lp", blocks, np.eye(count)) / 2
        return float(
            hit_probability(singles.reshape(len(singles), count, -1).sum(2), pairs, chosen).sum(1).mean()
        )

    return reached
