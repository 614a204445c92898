"""List neighbours of a plan of several layouts: one layout for all layers, or another rule for a range of layers.

Neighbours are not checked: they may be illegal.
"""

from collections.abc import Iterator

from meshwright.plans.forms.long import LayerRule, LongPlan
from meshwright.plans.forms.short import Recompute
from meshwright.plans.layers.plan_of_layout import plan_of_layout

ENDS = ("embed", "head")
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")


def layout_neighbours(plan: LongPlan) -> Iterator[LongPlan]:
    """Every neighbour of a plan with several layouts, without the plan itself."""
    for name in plan.layouts:
        yield plan_of_layout(plan, name)
    for key, rule in plan.layers.items():
        for name in plan.layouts:
            if name != rule.layout:
                yield from _with_rule(plan, key, rule.model_copy(update={"layout": name}))
        for recompute in RECOMPUTES if key not in ENDS else ():
            if recompute != rule.recompute:
                yield from _with_rule(plan, key, rule.model_copy(update={"recompute": recompute}))
    for sequences in (2 * plan.pipeline.micro_batch, plan.pipeline.micro_batch // 2):
        if sequences:
            pipeline = plan.pipeline.model_copy(update={"micro_batch": sequences})
            yield plan.model_copy(update={"pipeline": pipeline})


def _with_rule(plan: LongPlan, key: str, rule: LayerRule) -> Iterator[LongPlan]:
    """Yield the plan with another rule, and without layouts that nothing has any more."""
    layers = plan.layers | {key: rule}
    used = {of.layout for of in layers.values()}
    layouts = {name: layout for name, layout in plan.layouts.items() if name in used}
    if len(layouts) > 1:
        yield plan.model_copy(update={"layers": layers, "layouts": layouts})
