"""Write strategies of layers and a cut into stages as a plan in long form."""

from collections.abc import Sequence
from itertools import groupby, pairwise

from meshwright.plans.arrays.short_plans import short_plan
from meshwright.plans.forms.conversion import MAIN, ZERO_STATES, expand
from meshwright.plans.forms.long import LayerRule, Layout, LongPlan
from meshwright.plans.forms.short import Recompute, ShortPlan
from meshwright.plans.layers.layer_assignment import balanced_counts
from meshwright.plans.layers.uneven_partition import written_stages
from meshwright.plans.setting import Setting
from meshwright.verbs.plan.layers.pipeline_strategies import PipelineStrategies


def long_plan_of(
    found: PipelineStrategies, header: ShortPlan, setting: Setting, rows: Sequence[int], stops: Sequence[int]
) -> LongPlan:
    """Return the plan whose embedding, layers and head have the strategies at ``rows``, cut at ``stops``."""
    shorts = {row: short_plan(found.plans, row, header) for row in dict.fromkeys(rows)}
    numbers = found.layouts
    first_of = {int(numbers[row]): row for row in reversed(rows)}
    layouts = dict.fromkeys(int(numbers[row]) for row in rows)
    names = _names([shorts[first_of[layout]] for layout in layouts])
    name_of = dict(zip(layouts, names, strict=True))
    main = expand(shorts[first_of[next(iter(layouts))]], setting.model.architecture)
    rules = [(name_of[int(numbers[row])], shorts[row].recompute) for row in rows]
    several = len(layouts) > 1
    replicas = [shorts[first_of[layout]].layout for layout in layouts]
    most = max(of.dp_replicate * of.dp_shard for of in replicas)
    together = main.pipeline.micro_batch * replicas[0].dp_replicate * replicas[0].dp_shard
    counts = _layers_of_stages(stops)
    stages = "balanced" if counts == balanced_counts(len(rows) - 2, len(counts)) else written_stages(counts)
    return main.model_copy(
        update={
            "layouts": {
                name_of[layout]: _layout(shorts[first_of[layout]], setting, several=several)
                for layout in layouts
            },
            "layers": _rules(rules),
            "pipeline": main.pipeline.model_copy(update={"stages": stages, "micro_batch": together // most}),
        }
    )


def _layout(short: ShortPlan, setting: Setting, *, several: bool) -> Layout:
    long = expand(short, setting.model.architecture)
    layout = long.layouts[MAIN]
    return (
        layout.model_copy(update={"states": ZERO_STATES[short.sharding], "gather": long.gather})
        if several
        else layout
    )


def _rules(rules: Sequence[tuple[str, Recompute]]) -> dict[str, LayerRule]:
    """Return a rule for each run of equal layers, for the embedding and for the head."""
    found = {"embed": LayerRule(layout=rules[0][0])}
    for (layout, recompute), run in groupby(range(len(rules) - 2), key=lambda at: rules[at + 1]):
        first, *rest = run
        found[f"{first}..{rest[-1]}" if rest else str(first)] = LayerRule(layout=layout, recompute=recompute)
    return {**found, "head": LayerRule(layout=rules[-1][0])}


def _layers_of_stages(stops: Sequence[int]) -> tuple[int, ...]:
    """Return the layers of every stage, without the embedding and the head."""
    counts = [stop - first for first, stop in pairwise(stops)]
    counts[0] -= 1
    counts[-1] -= 1
    return tuple(counts)


def _names(layouts: Sequence[ShortPlan]) -> list[str]:
    """Return a name for each layout: its largest axes and its sharding, numbered where these are equal."""
    if len(layouts) == 1:
        return [MAIN]
    names: list[str] = []
    for plan in layouts:
        degrees = {
            axis: getattr(plan.layout, axis) for axis in ("tp", "cp", "dp_shard", "dp_replicate", "ep")
        }
        axes = [f"{axis}{degree}" for axis, degree in degrees.items() if degree > 1][:2]
        name = "-".join([*axes, *([plan.sharding] if plan.sharding != "none" else [])]) or "alone"
        number = sum(other == name or other.startswith(f"{name}-v") for other in names)
        names.append(f"{name}-v{number + 1}" if number else name)
    return names
