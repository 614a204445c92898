"""The layout of each block of a model: read from a plan's rules, and blocks told apart by it."""

from dataclasses import replace
from itertools import groupby

from meshwright.model.graph import ModelGraph
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.layers.layer_assignment import layer_rules


def with_layouts(model: ModelGraph, plan: LongPlan) -> tuple[ModelGraph, list[str]]:
    """Return the same model with blocks that are distinct for each layout, and the layout of every block.

    The first layer of a block keeps its index; those with another layout get blocks of their own, at the end.
    """
    rules = layer_rules(plan, len(model.layer_blocks))
    default = next(iter(plan.layouts))
    order = [model.chain[0][0], *model.layer_blocks, model.chain[-1][0]]
    named = [default if rule is None else rule.layout for rule in (rules.embed, *rules.layers, rules.head)]
    blocks, layouts = list(model.blocks), dict[int, str]()
    index_of: dict[tuple[int, str], int] = {}
    for block, layout in dict.fromkeys(zip(order, named, strict=True)):
        index_of[block, layout] = block if block not in layouts else len(blocks)
        if block in layouts:
            blocks.append(model.blocks[block])
        layouts[index_of[block, layout]] = layout
    of_layers = [index_of[key] for key in zip(order, named, strict=True)][1:-1]
    layers = [(index, len(list(run))) for index, run in groupby(of_layers)]
    chain = (model.chain[0], *layers, model.chain[-1])
    return (
        replace(model, blocks=tuple(blocks), chain=chain),
        [layouts.get(block, default) for block in range(len(blocks))],
    )
