"""Compare two plans by range of layers, where one of them treats layers differently.

A range ends where the layout or the recomputation of either plan changes. Numbers are sums over its layers, each on one
device of the pipeline rank that holds it (``explanation/costs_by_block.py``).
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from meshwright.errors import InputError
from meshwright.explanation.costs_by_block import BlockCosts, block_costs
from meshwright.plans.forms.short import Recompute
from meshwright.plans.layers.layout_by_layer import block_ranges, format_layout, layouts_by_block
from meshwright.plans.layers.recompute_by_layer import format_layer_recomputes, layer_recomputes
from meshwright.plans.resolve import Resolved
from meshwright.present.plan_answers.layout_text import plan_words
from meshwright.verbs.predict.predict_plan import check_playable

ORIGIN = (
    "predicted: sums over the layers of a range, each on one device of the pipeline rank that holds it; seconds of all "
    "passes of a step, states without buffers, activations at the rank's peak"
)
Rule = tuple[str, Recompute]
"""The layout and the recomputation of a block."""


def compare_ranges(a: Resolved, b: Resolved) -> dict[str, Any] | None:
    """Return both plans' choices and costs of every range of layers; None where all layers of each plan are alike.

    ``{rows: [{blocks, layers, a, b}], between_s, plans, why, origin}``; without rows ``why`` says the reason.
    """
    if not (_differs(a) or _differs(b)):
        return None
    words = {"a": plan_words(a.long.to_data()), "b": plan_words(b.long.to_data())}
    why = _why_not(a, b)
    if why is not None:
        return {"rows": [], "between_s": None, "plans": words, "why": why, "origin": ORIGIN}
    sides = {
        "a": (a, _rules(a), block_costs(a.long, a.setting)),
        "b": (b, _rules(b), block_costs(b.long, b.setting)),
    }
    pairs = list(zip(*(rules for _, rules, _ in sides.values()), strict=True))
    rows = [
        {
            "blocks": name,
            "layers": 0 if name in ("embed", "head") else len(places),
            **{
                key: _side(plan, rules[places[0]], costs, places)
                for key, (plan, rules, costs) in sides.items()
            },
        }
        for name, places in block_ranges(pairs)
    ]
    between = {key: costs.between_s for key, (_, _, costs) in sides.items()}
    return {"rows": rows, "between_s": between, "plans": words, "why": None, "origin": ORIGIN}


def _differs(plan: Resolved) -> bool:
    """Return true if some layers have another layout or recomputation than others."""
    return len(set(_rules(plan)[1:-1])) > 1 or len(plan.long.layouts) > 1


def _rules(plan: Resolved) -> list[Rule]:
    """Return layout and recomputation of the embedding, of each layer, and of the head."""
    layers = plan.setting.model.architecture.layers
    again = ("none", *layer_recomputes(plan.long, layers), "none")
    return list(zip(layouts_by_block(plan.long, layers), again, strict=True))


def _why_not(a: Resolved, b: Resolved) -> str | None:
    """Return the reason why the layers of two plans do not compare."""
    counts = [plan.setting.model.architecture.layers for plan in (a, b)]
    if counts[0] != counts[1]:
        return f"the models have {counts[0]} and {counts[1]} layers"
    return "; ".join(chain(*(_too_long(plan) for plan in (a, b)))) or None


def _too_long(plan: Resolved) -> Iterator[str]:
    try:
        check_playable(plan)
    except InputError as error:
        yield from (problem.rule for problem in error.problems)


def _side(plan: Resolved, rule: Rule, costs: BlockCosts, places: Sequence[int]) -> dict[str, Any]:
    """Return one plan's choices and costs of a range."""
    layout, recompute = rule
    kept = costs.activations_bytes
    return {
        "layout": layout,
        "degrees": format_layout(plan.long, layout),
        "recompute": format_layer_recomputes([recompute]),
        "passes_s": sum(costs.passes_s[place] for place in places),
        "states_bytes": sum(costs.states_bytes[place] for place in places),
        "activations_bytes": None if kept is None else sum(kept[place] for place in places),
    }
