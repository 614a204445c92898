"""Give the ranks of a small plan unlike shares of the batch and of the states, as those of a large plan have."""

from collections.abc import Mapping
from math import lcm

from meshwright.plans.forms.long import Layout, LongPlan
from meshwright.plans.layers.plan_of_layout import replicas, state_weights, uneven_batches

MOST = 3
"""The largest weight of a rank that shares states; others have 1 or 0."""


def with_small_shares(layouts: Mapping[str, Layout], plan: LongPlan) -> dict[str, Layout]:
    """Return small layouts with shares of the batch and of states, for the layouts of ``plan`` that have them.

    All shares of the batch sum to twice the least number of sequences that the replicas of every layout divide. One
    replica has most of them, and one rank most of the states, at the place of the one of the large plan.
    """
    together = 2 * lcm(*map(replicas, layouts.values())) if uneven_batches(plan) else 0
    return {
        name: layout.model_copy(
            update={
                "batch_share": _batch(plan.layouts[name].batch_share, replicas(layout), together),
                "state_share": _states(state_weights(plan.layouts[name]), layout),
            }
        )
        for name, layout in layouts.items()
    }


def _batch(share: tuple[int, ...] | None, count: int, together: int) -> tuple[int, ...] | None:
    """Return shares of so many replicas with the same sum."""
    if share is None:
        return None
    most = _place_of_most(share, count)
    return tuple(together - count + 1 if place == most else 1 for place in range(count))


def _states(share: tuple[int, ...] | None, layout: Layout) -> tuple[int, ...] | None:
    """Return the weights of a small layout's ranks: one has most, and of several others one has none if some have."""
    count = layout.grid.dp_shard * layout.grid.cp
    if share is None or count == 1:
        return None
    most, weights = _place_of_most(share, count), [1] * count
    weights[most] = MOST
    if not all(share) and count > 2:
        weights[(most + 1) % count] = 0
    return tuple(weights)


def _place_of_most(share: tuple[int, ...], count: int) -> int:
    """Return the place of the largest share among so many."""
    return share.index(max(share)) * count // len(share)
