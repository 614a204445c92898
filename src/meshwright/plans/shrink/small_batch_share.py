"""Give the replicas of a small plan unlike numbers of sequences, as those of a large plan have."""

from collections.abc import Mapping
from math import lcm

from meshwright.plans.forms.long import Layout, LongPlan
from meshwright.plans.layers.plan_of_layout import replicas, uneven_batches


def with_small_shares(layouts: Mapping[str, Layout], plan: LongPlan) -> dict[str, Layout]:
    """Return small layouts with shares of the batch, for the layouts of ``plan`` that have them.

    All shares sum to twice the least number of sequences that the replicas of every layout divide. One replica has most
    of them, at the place of the one of the large plan.
    """
    if not uneven_batches(plan):
        return dict(layouts)
    together = 2 * lcm(*map(replicas, layouts.values()))
    shares = {name: layout.batch_share for name, layout in plan.layouts.items()}
    return {
        name: layout.model_copy(update={"batch_share": _small(shares[name], replicas(layout), together)})
        for name, layout in layouts.items()
    }


def _small(share: tuple[int, ...] | None, count: int, together: int) -> tuple[int, ...] | None:
    """Return shares of so many replicas with the same sum."""
    if share is None:
        return None
    most = share.index(max(share)) * count // len(share)
    return tuple(together - count + 1 if place == most else 1 for place in range(count))
