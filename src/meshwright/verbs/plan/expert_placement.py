"""Place experts of proposed plans on ranks, if the workload has counts of the routers' choices.

A layer's time is that of its passes over one micro-batch, by the forms that price plans; of plans that spread experts
over as many ranks and nodes the first one's price decides for all. The plan is then priced in full, and keeps the
model's order where no other makes its step shorter.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from meshwright.cost.closed_form.plan_group import PlanGroup
from meshwright.cost.operators.pass_prices import Prices, total
from meshwright.cost.plan_report import closed_form, group_of, report
from meshwright.model.operators.operator_types import Dispatch
from meshwright.placement.expert_order.gain import ExpertOrderGain
from meshwright.placement.expert_order.problem import DispatchLoad, Floats, Task
from meshwright.placement.expert_order.solve import ExpertPlacement, solve_expert_order
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ExpertOrder, ShortPlan
from meshwright.plans.layers.recompute_by_layer import layer_recomputes
from meshwright.plans.setting import Setting
from meshwright.program.expert_dispatch.fanout_from_router_counts import router_counts
from meshwright.program.local_shape import LocalShape
from meshwright.program.lowering.block_items import BLOCK_PASSES
from meshwright.search.reasons import Reason
from meshwright.verbs.plan.proposal import Proposal

FIELD = "expert_order"


def with_expert_orders(proposals: Sequence[Proposal], setting: Setting) -> tuple[Proposal, ...]:
    """Return the proposals with orders of experts where these make a step shorter."""
    if not orders_experts(setting):
        return tuple(proposals)
    known: dict[tuple[int, int], ExpertPlacement] = {}
    return tuple(_with_order(one, setting, known) for one in proposals)


def orders_experts(setting: Setting) -> bool:
    """Return true if experts of proposed plans are placed: routers' choices were counted, and the stack orders them."""
    routing, moe = setting.workload.routing, setting.model.architecture.moe
    counted = routing is not None and routing.counts is not None
    return counted and moe is not None and setting.stack.orders_experts


def expert_task(short: ShortPlan, long: LongPlan, setting: Setting) -> Task | None:
    """Return the expert placement task; None if each rank has all experts, or without counts of routing."""
    routing, moe = setting.workload.routing, setting.model.architecture.moe
    if moe is None or routing is None or isinstance(routing.value, str | float) or short.layout.ep == 1:
        return None
    group = group_of(
        short, setting, long.pipeline.stages, layer_recomputes(long, setting.model.architecture.layers)
    )
    shape = _of_one(group.prices.local.shape)
    nodes, found = int(shape.ep / shape.ep_inside), router_counts(routing.value, moe.experts_per_token)
    pairs = np.zeros((*found.singles.shape, moe.experts)) if found.pairs is None else found.pairs
    price = _Price(group, shape, nodes, known=found.pairs is not None)
    return Task(found.singles, pairs, moe.experts_per_token, int(shape.ep), nodes, price)


@dataclass(frozen=True, eq=False)
class _Price:
    """Seconds that a routed layer takes for a micro-batch; ``known``: pairs were counted."""

    group: PlanGroup
    shape: LocalShape
    nodes: int
    known: bool

    def __call__(self, meeting: DispatchLoad) -> Floats:
        prices, group = self.group.prices, self.group

        def reached(parts: float) -> Floats:
            return meeting.nodes if int(parts) == self.nodes else meeting.ranks

        shape = replace(self.shape, busiest=meeting.busiest, reached=reached if self.known else None)
        blocks = enumerate(group.setting.model.blocks)
        at, block = next(one for one in blocks if any(isinstance(op, Dispatch) for op in one[1].operators))
        items = {
            (at, kind): BLOCK_PASSES[kind](block, shape, group.mode, group.setting.stack)
            for kind in group.pass_kinds
        }
        anew = Prices(replace(prices.local, shape=shape), prices.mesh, items, prices.blocks)
        return np.zeros_like(meeting.busiest) + sum(total(anew.block(at, kind)) for kind in group.pass_kinds)


def _of_one(shape: LocalShape) -> LocalShape:
    """Return the shape of the one plan of an array, in numbers."""
    values = {field.name: getattr(shape, field.name) for field in fields(shape)}
    return replace(
        shape, **{name: value.item() for name, value in values.items() if isinstance(value, np.ndarray)}
    )


def _with_order(one: Proposal, setting: Setting, known: dict[tuple[int, int], ExpertPlacement]) -> Proposal:
    long = one.long or expand(one.plan, setting.model.architecture)
    task = expert_task(one.plan, long, setting)
    if task is None:
        return one
    place = task.ranks, task.nodes
    if place not in known:
        known[place] = solve_expert_order(task)
    answer = known[place]
    if not answer.changes:
        return one
    order = tuple(tuple(map(int, row)) for row in answer.orders)
    short, ordered = _ordered(one.plan, long, order)
    layers = layer_recomputes(long, setting.model.architecture.layers)
    again = report(ordered, closed_form(short, setting, long.pipeline.stages, layers), setting)
    if again.step_time_s >= one.report.step_time_s:
        return one
    before, after = answer.as_numbered, answer.meeting
    each = setting.stack.deduplicates_exchange
    sent = [
        (float(of.nodes.mean()) if each else task.chosen) * (1 - 1 / task.nodes) for of in (before, after)
    ]
    gain = ExpertOrderGain(
        answer,
        crossing=(sent[0], sent[1]),
        busiest=(float(before.busiest.mean()), float(after.busiest.mean())),
        step_s=(one.report.step_time_s, again.step_time_s),
    )
    again = replace(again, remarks=one.report.remarks)
    reasons = (*one.reasons, Reason(FIELD, f"{len(order)} rows", str(gain)))
    return replace(one, plan=short, report=again, reasons=reasons, long=one.long and ordered, experts=gain)


def _ordered(short: ShortPlan, long: LongPlan, order: ExpertOrder) -> tuple[ShortPlan, LongPlan]:
    """Both forms of a plan with an order of experts."""
    update = {FIELD: order}
    layouts = {name: layout.model_copy(update=update) for name, layout in long.layouts.items()}
    return (
        short.model_copy(update={"layout": short.layout.model_copy(update=update)}),
        long.model_copy(update={"layouts": layouts}),
    )
