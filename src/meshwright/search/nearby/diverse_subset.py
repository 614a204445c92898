"""A diverse subset of plans to measure: near the best, and far from each other in what they stress.

Constants of compute, network and host time can only be told apart by runs that use them differently. Distance is the
number of degrees (tp, pp, cp, ep, micro-batch) that differ: how much they do is left to speed, for an extreme plan
tells little of the one that will run. The first is given; each next one is the plan farthest from all chosen (greedy
k-centre; Gonzalez 1985), of equally far ones the better plan.
"""

from collections.abc import Sequence
from typing import TypeVar

from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.plan_of_layout import plan_of_main_layout

P = TypeVar("P", bound=ShortPlan | LongPlan)


def coordinates(plan: ShortPlan | LongPlan) -> tuple[int, ...]:
    """Return the plan as a point: (tp, pp, cp, ep, micro_batch)."""
    if isinstance(plan, ShortPlan):
        degrees = plan.layout
        return degrees.tp, degrees.pp, degrees.cp, degrees.ep, plan.pipeline.micro_batch
    (layout,) = plan_of_main_layout(plan).layouts.values()
    ep = layout.experts.ep if layout.experts else 1
    return layout.grid.tp, plan.pipeline.ranks, layout.grid.cp, ep, plan.pipeline.micro_batch


def diverse_subset(first: P, others: Sequence[P], count: int) -> list[P]:
    """``count`` plans, ``first`` among them; fewer where the others are no different. ``others`` are best first."""
    chosen = [first]
    while len(chosen) < count:
        distances = [min(_distance(plan, mine) for mine in chosen) for plan in others]
        farthest = max(distances, default=0)
        if farthest == 0:
            break
        chosen.append(others[distances.index(farthest)])
    return chosen


def _distance(a: ShortPlan | LongPlan, b: ShortPlan | LongPlan) -> int:
    return sum(x != y for x, y in zip(coordinates(a), coordinates(b), strict=True))
