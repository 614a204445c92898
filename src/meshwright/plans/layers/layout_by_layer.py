"""The layout of each block of a model, read from a plan's rules."""

from meshwright.plans.forms.long import LongPlan
from meshwright.plans.layers.layer_assignment import layer_rules


def layouts_by_block(plan: LongPlan, layers: int) -> list[str]:
    """Return the names of the layouts of the embedding, of each of ``layers`` layers, and of the head."""
    rules, default = layer_rules(plan, layers), next(iter(plan.layouts))
    every = (rules.embed, *rules.layers, rules.head)
    return [default if rule is None else rule.layout for rule in every]
