"""Check that a stack can run the recomputation of each layer: equal for all, any, or the first n of each stage."""

from collections.abc import Iterator, Sequence

from meshwright.errors import Problem
from meshwright.plans.forms.short import Recompute
from meshwright.plans.layers.first_recomputed import first_recomputed, nearest_first
from meshwright.plans.layers.layer_assignment import layer_rules, stage_layers, stage_problems
from meshwright.plans.layers.recompute_by_layer import format_layer_recomputes, layer_recomputes
from meshwright.plans.rules.rule_input import RuleInput
from meshwright.stack.stack import OWN_STACK


def recomputation_by_layer(case: RuleInput) -> Iterator[Problem]:
    """Refuse layers that recompute different things where the stack cannot."""
    of_layers, stack = layer_recomputes(case.plan, case.arch.layers), case.stack
    if len(set(of_layers)) == 1 or stack.recomputes_any_layers:
        return
    text = format_layer_recomputes(of_layers)
    if "recompute" not in stack.varies_by_layer:
        rule = f"{stack.id} recomputes all layers alike"
        yield Problem("layers", text, rule, f"recompute: full for all of them, or stack: {OWN_STACK}")
        return
    pipeline, layers = case.plan.pipeline, case.arch.layers
    if stage_problems(pipeline, layers) or layer_rules(case.plan, layers).problems:
        return
    stages, main = stage_layers(pipeline, layers), case.arch.main_layers
    first = nearest_first(of_layers, stages, main)
    nearest = first_recomputed(stages, main, layers, first)
    if nearest != of_layers:
        rule = f"{stack.id} recomputes all of the first n layers of each stage, n alike for all stages, and no others"
        yield Problem("layers", text, rule, _suggestion(of_layers, nearest, first))


def _suggestion(of_layers: Sequence[Recompute], nearest: Sequence[Recompute], first: int) -> str:
    """Return the change of fewest layers: one word for all of them, or the nearest n."""
    most = max((word for word in of_layers if word != "none"), key=of_layers.count)
    kept = sum(own == other for own, other in zip(of_layers, nearest, strict=True))
    if of_layers.count(most) > kept:
        return f"recompute: {format_layer_recomputes([most])} for all of them"
    if len(set(nearest)) == 1:
        return "recompute: full for all of them"
    return f"n = {first}: {format_layer_recomputes(nearest)}"
