"""Place the ranks of proposed plans on nodes, where links or tiers make nodes differ."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from meshwright.cost.operators.price_plans import fabric_of
from meshwright.cost.plan_report import closed_form, report
from meshwright.placement.node_order.nearest_first import MOST_NODES
from meshwright.placement.node_order.solve import NodePlacement, bound_s, solve_node_order
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import NodeOrder
from meshwright.plans.layers.recompute_by_layer import layer_recomputes
from meshwright.plans.setting import Setting
from meshwright.search.reasons import Reason
from meshwright.verbs.plan.proposal import Proposal
from meshwright.verbs.predict.slow_links import placement_task, slow_link_effects

SPARE = 3
"""Plans behind the best that an order of nodes may still bring among them."""
FIELD = "node_order"
NODES_LISTED = 16
"""Nodes of an order that a reason lists."""


def spare_plans(setting: Setting) -> int:
    """Return the number of additional plans to try with node orders of their own."""
    fabric = fabric_of(setting.cluster)
    return SPARE if fabric is not None and fabric.nodes <= MOST_NODES else 0


def with_node_orders(proposals: Sequence[Proposal], setting: Setting, top: int) -> tuple[Proposal, ...]:
    """Return the proposals, each with its best order of nodes; unchanged where nodes are alike.

    One that no order brings among the ``top`` best keeps the order that all were searched with.
    """
    if not spare_plans(setting):
        return tuple(proposals)
    found: list[Proposal] = []
    for one in proposals:
        best = sorted(other.report.step_time_s for other in found)[:top]
        found.append(with_node_order(one, setting, best[-1] if len(best) == top else np.inf))
    return tuple(found)


def with_node_order(one: Proposal, setting: Setting, enough: float = np.inf) -> Proposal:
    """Return the proposal with the best node order found; unchanged if its step is not below ``enough``."""
    long = one.long or expand(one.plan, setting.model.architecture)
    task = placement_task(one.plan, long, setting)
    if task is None or bound_s(task) >= enough:
        return one
    answer = solve_node_order(task)
    order = answer.order if answer.changes else None
    ordered = one if order == one.plan.layout.node_order else _with(one, long, order, setting)
    slow = tuple(map(str, slow_link_effects(task, answer.order, setting.cluster)))
    remarked = replace(ordered.report, remarks=(*one.report.remarks, *slow))
    return replace(ordered, report=remarked, reasons=(*one.reasons, _reason(answer)), placed=answer)


def _with(one: Proposal, long: LongPlan, order: NodeOrder | None, setting: Setting) -> Proposal:
    """Return the proposal with an order of nodes, priced in full."""
    short = one.plan.model_copy(update={"layout": one.plan.layout.model_copy(update={FIELD: order})})
    ordered, layers = _ordered(long, order), layer_recomputes(long, setting.model.architecture.layers)
    again = report(ordered, closed_form(short, setting, long.pipeline.stages, layers), setting)
    return replace(one, plan=short, report=again, long=one.long and ordered)


def _ordered(long: LongPlan, order: NodeOrder | None) -> LongPlan:
    layouts = {name: layout.model_copy(update={FIELD: order}) for name, layout in long.layouts.items()}
    return long.model_copy(update={"layouts": layouts})


def _reason(answer: NodePlacement) -> Reason:
    known = "the best of all orders" if answer.exact else f"at most {answer.gap:.1%} above the best order"
    if not answer.changes:
        return Reason(FIELD, "as listed", known)
    more = " …" if len(answer.order) > NODES_LISTED else ""
    first = " ".join(map(str, answer.order[:NODES_LISTED])) + more
    return Reason(FIELD, first, f"{answer.gained:.1%} shorter than as listed, {known}")
