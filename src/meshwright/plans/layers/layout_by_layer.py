"""Find the layout of each block of a model in a plan's rules, and format layouts as text."""

from meshwright.plans.forms.long import LongPlan
from meshwright.plans.layers.layer_assignment import layer_rules
from meshwright.plans.layers.plan_of_layout import plan_of_layout


def layouts_by_block(plan: LongPlan, layers: int) -> list[str]:
    """Return the names of the layouts of the embedding, of each of ``layers`` layers, and of the head."""
    rules, default = layer_rules(plan, layers), next(iter(plan.layouts))
    every = (rules.embed, *rules.layers, rules.head)
    return [default if rule is None else rule.layout for rule in every]


def format_layout(plan: LongPlan, name: str) -> str:
    """Return a layout's degrees above 1 and its sharding: ``dp_shard 4 tp 2 zero1``."""
    degrees = plan.layouts[name].grid.model_dump()
    axes = " ".join(f"{axis} {degree}" for axis, degree in degrees.items() if degree > 1) or "one device"
    sharding = plan_of_layout(plan, name).sharding
    return axes + (f" {sharding}" if sharding != "none" else "")


def format_layouts(plan: LongPlan) -> str:
    """Return the layouts of a plan in a line: ``a: dp_shard 4 tp 2 zero1, b: dp_shard 8, pp 2 1f1b``."""
    texts, ranks = [f"{name}: {format_layout(plan, name)}" for name in plan.layouts], plan.pipeline.ranks
    return ", ".join([*texts, *([f"pp {ranks} {plan.pipeline.schedule.choice}"] if ranks > 1 else [])])


def format_layout_ranges(plan: LongPlan) -> str:
    """Return the layouts of ranges in a line: ``dp_shard 4 tp 2 zero1 in embed 0..19, dp_shard 8 in 20..31 head``."""
    places: dict[str, list[str]] = {}
    for key, rule in plan.layers.items():
        places.setdefault(rule.layout, []).append(key)
    return ", ".join(f"{format_layout(plan, name)} in {' '.join(keys)}" for name, keys in places.items())
