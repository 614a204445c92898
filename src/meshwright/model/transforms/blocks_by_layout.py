"""Give the blocks of a model one copy for each layout that a plan has for them."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

from meshwright.model.graph import ModelGraph

Layout = TypeVar("Layout", bound=Hashable)


def with_layouts(model: ModelGraph, layouts: Sequence[Layout]) -> tuple[ModelGraph, list[Layout]]:
    """Return the same model with blocks that are distinct for each layout, and the layout of every block.

    The blocks of an encoder have the first block's layout.
    ``layouts`` names those of the first block, of every layer, and of the last block. The first of equal layers keeps
    the index; those with another layout get a block at the end.
    """
    order = [model.chain[0][0], *model.layer_blocks, model.chain[-1][0]]
    blocks, found = list(model.blocks), dict[int, Layout]()
    index_of: dict[tuple[int, Layout], int] = {}
    for block, layout in dict.fromkeys(zip(order, layouts, strict=True)):
        index_of[block, layout] = len(blocks) if block in found else block
        if block in found:
            blocks.append(model.blocks[block])
        found[index_of[block, layout]] = layout
    of_layers = [index_of[key] for key in zip(order, layouts, strict=True)][1:-1]
    layers = [(index, len(list(run))) for index, run in groupby(of_layers)]
    split = replace(
        model, blocks=tuple(blocks), chain=(model.chain[0], *model.encoder_chain, *layers, model.chain[-1])
    )
    return split, [found.get(block, layouts[0]) for block in range(len(blocks))]
