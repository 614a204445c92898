"""The effect of uneven links between nodes on a plan: the groups that wait for them, and the cost."""

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.cluster import Cluster
from meshwright.cost.closed_form.evaluate_plans import step_seconds
from meshwright.cost.operators.price_plans import fabric_of
from meshwright.placement.node_order.problem import Task
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.recompute_by_layer import layer_recomputes
from meshwright.plans.setting import Setting
from meshwright.program.layouts.node_hops import Groups
from meshwright.units import GIGA, format_seconds

LITTLE = 1e-3
"""A part of a step that nobody needs to be told of."""


def placement_task(short: ShortPlan, long: LongPlan, setting: Setting) -> Task | None:
    """Return the node placement task; None where nodes are alike or no group crosses nodes.

    ``short`` is the plan but for its stages and for what each layer recomputes, as closed forms know it.
    """
    fabric = fabric_of(setting.cluster)
    if fabric is None or fabric.nodes == 1:
        return None
    recomputes = layer_recomputes(long, setting.model.architecture.layers)
    plans = replace(from_shorts([short]), stages=long.pipeline.stages, layer_recomputes=recomputes)
    priced: defaultdict[Hashable, float] = defaultdict(lambda: 1.0)
    _seconds(plans, setting, priced)
    groups = tuple(g for g in priced if isinstance(g, Groups) and len(g.hops(fabric.per_node)))

    def step_s(slowdowns: NDArray[np.float64]) -> float:
        known: dict[Hashable, float] = dict(zip(groups, slowdowns.tolist(), strict=True))
        return _seconds(plans, setting, defaultdict(lambda: 1.0, known))

    return Task(fabric, groups, step_s) if groups else None


def _seconds(plans: PlanArrays, setting: Setting, slowdowns: Mapping[Hashable, float]) -> float:
    """Return the step of one plan in seconds, its groups slowed down by these factors."""
    return float(step_seconds(replace(plans, slowdowns=slowdowns), setting)[0])


@dataclass(frozen=True, slots=True)
class SlowLinkEffect:
    """``axes`` are ``factor`` times slower for a link or for uplinks (``where``), which makes the step longer."""

    axes: tuple[str, ...]
    where: str
    factor: float
    seconds: float

    def __str__(self) -> str:
        return (
            f"{'·'.join(self.axes)} waits for {self.where}, {self.factor:.3g} times slower than the nodes' cards: "
            f"{format_seconds(self.seconds)} of the step"
        )


def slow_link_effects(task: Task, order: tuple[int, ...], cluster: Cluster) -> list[SlowLinkEffect]:
    """Kinds of groups that slow links make a step longer by, the dearest first: each with the one that binds it."""
    row = task.slowdowns(np.array([order]))[0]
    whole, found = task.step_s(row), []
    for kind, factor in enumerate(row.tolist()):
        if factor <= 1:
            continue
        without = row.copy()
        without[kind] = 1.0
        seconds = whole - task.step_s(without)
        if seconds > LITTLE * whole:
            names = task.groups[kind].names
            found.append(SlowLinkEffect(names, _where(task, kind, order, cluster), factor, seconds))
    return sorted(found, key=lambda one: -one.seconds)


def _where(task: Task, kind: int, order: tuple[int, ...], cluster: Cluster) -> str:
    """Return the link, or the tier, that a kind of group waits for."""
    fabric, hops, nodes = task.fabric, task.hops[kind], np.array(order)
    one, other = nodes[hops.source], nodes[hops.target]
    at = int(fabric.slowness[one, other].argmax())
    slowest = float(fabric.slowness[one[at], other[at]])
    if slowest < task.slowdowns(nodes[None])[0][kind]:
        return "uplinks of " + " and ".join(tier.name for tier in fabric.tiers)
    ends = sorted((int(one[at]), int(other[at])))
    card = cluster.pool.node.nic_bytes_per_s * fabric.per_node / cluster.pool.node.devices
    kinds = () if cluster.links is None else cluster.links.kinds
    kinds_text = f" ({' | '.join(dict.fromkeys(kinds[node] for node in ends))})" if kinds else ""
    rate = f"{card / slowest * 8 / GIGA:,.4g} of {card * 8 / GIGA:,.4g} Gbit/s"
    return f"the link of nodes {ends[0]} and {ends[1]}{kinds_text}, {rate}"
