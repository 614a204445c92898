"""Apply a plan's recomputation to a model's layers.

Equal layers with different recomputation become different blocks: they take other times and save other bytes.
So lowering, prices and the runtime ask only the block, and need no plan, stage or layer.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from meshwright.model.graph import ModelGraph, Recomputed


def with_recompute(model: ModelGraph, of_layers: Sequence[Recomputed]) -> ModelGraph:
    """Return the same operators and parameters, with ``of_layers[i]`` recomputed in decoder layer i.

    An encoder's layers are recomputed as the first layer of the decoder is.

    The first layer of a kind keeps its block's index; blocks that differ from it are appended.
    """
    of_kinds = list(zip(model.layer_blocks, of_layers, strict=True))
    blocks = list(model.blocks)
    index_of: dict[tuple[int, Recomputed], int] = {}
    for index, recompute in dict.fromkeys(of_kinds):
        block = replace(model.blocks[index], recompute=recompute)
        if any(index == known for known, _ in index_of):
            index_of[index, recompute] = len(blocks)
            blocks.append(block)
        else:
            index_of[index, recompute] = index
            blocks[index] = block
    for index, _ in model.encoder_chain:
        if blocks[index].kind == "encoder":
            blocks[index] = replace(blocks[index], recompute=of_layers[0])
    layers = [(index, len(list(run))) for index, run in groupby(index_of[key] for key in of_kinds)]
    return replace(
        model, blocks=tuple(blocks), chain=(model.chain[0], *model.encoder_chain, *layers, model.chain[-1])
    )
