"""The recomputation of each layer: read from rules, written as rules, formatted, and sampled for a small copy.

The short form has one word for all layers; in the long form every range of layers may have its own.
"""

from collections.abc import Sequence
from itertools import groupby

from meshwright.plans.forms.long import LayerRule, LongPlan
from meshwright.plans.forms.short import Recompute
from meshwright.plans.layers.layer_assignment import layer_rules


def layer_recomputes(plan: LongPlan, layers: int) -> tuple[Recompute, ...]:
    """Return the recomputation of each of ``layers`` layers; none where no rule has one."""
    return tuple("none" if rule is None else rule.recompute for rule in layer_rules(plan, layers).layers)


def with_layer_recomputes(plan: LongPlan, of_layers: Sequence[Recompute]) -> LongPlan:
    """Return a plan where layer i recomputes ``of_layers[i]``: one rule for each run of equal layers."""
    each = [
        rule and rule.model_copy(update={"recompute": recompute})
        for rule, recompute in zip(layer_rules(plan, len(of_layers)).layers, of_layers, strict=True)
    ]
    ranges: dict[str, LayerRule] = {}
    for rule, run in groupby(range(len(each)), key=each.__getitem__):
        assert rule is not None, "every layer has a rule"
        first, *rest = run
        ranges[f"{first}..{rest[-1] if rest else first}"] = rule
    layers = {"embed": plan.layers["embed"], **ranges, "head": plan.layers["head"]}
    return plan.model_copy(update={"layers": layers})


def recomputes_from_stages(counts: Sequence[int], of_stages: Sequence[Recompute]) -> tuple[Recompute, ...]:
    """Return the recomputation of each layer from the layer counts and recomputations of stages."""
    return tuple(word for count, word in zip(counts, of_stages, strict=True) for _ in range(count))


def sampled(of_layers: Sequence[Recompute], count: int) -> tuple[Recompute, ...]:
    """Return the same for ``count`` layers: drawn evenly, then every missing choice added.

    With at least as many layers as there are choices, each of these is there.
    """
    last = len(of_layers) - 1
    places = [round(layer * last / max(1, count - 1)) for layer in range(count)]
    drawn = [of_layers[place] for place in places]
    for missed in (choice for choice in dict.fromkeys(of_layers) if choice not in drawn):
        spare = (layer for layer in range(count) if drawn.count(drawn[layer]) > 1)
        nearest = min(spare, key=lambda layer: abs(places[layer] - of_layers.index(missed)), default=None)
        if nearest is not None:
            drawn[nearest] = missed
    return tuple(drawn)


def format_layer_recomputes(of_layers: Sequence[Recompute]) -> str:
    """``full``; or, where layers differ, ``full in layers 0..39, none in layers 40..79``."""
    names = [choice if isinstance(choice, str) else "+".join(choice) for choice in of_layers]
    if len(set(names)) == 1:
        return names[0]
    ranges: dict[str, list[str]] = {}
    for name, run in groupby(range(len(names)), key=names.__getitem__):
        first, *rest = run
        ranges.setdefault(name, []).append(f"{first}..{rest[-1]}" if rest else str(first))
    places = {name: " ".join(where) for name, where in ranges.items()}
    return ", ".join(f"{name} in layer{'' if at.isdecimal() else 's'} {at}" for name, at in places.items())
