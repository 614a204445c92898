"""Hand-over of a sequence's cache from one replica to another: a change of its layout.

Both replicas say which heads and blocks of each layer a rank holds (``cache_layout.py``). Each rank of the receiver
takes what it needs from whoever holds it, of several copies from the one that has given least so far, of these from
that whose place is nearest, as activations do between layouts (``program/reshard.py``). Ranks that hold copies of a
head take each their own. The receiver stands behind the sender, in another fast domain where one does not hold both.
Both have the same formats and block size, and blocks move whole.
"""

from collections import Counter
from collections.abc import Iterator
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.model.graph import Block, ModelGraph
from meshwright.program.layouts.activation_transfers import nearest_holder
from meshwright.program.reshard import MovedBytes, busiest_bytes
from meshwright.program.serving.cache_layout import CacheLayout, cache_layouts
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.stage_layers import layers_of_stages, served_layers
from meshwright.program.serving.storage_formats import StorageFormats


class Place(NamedTuple):
    """Where a sequence is in a replica: its first rank, and the rank of attention_dp that has the sequence."""

    degrees: ReplicaDegrees
    first_rank: int = 0
    attention_rank: int = 0

    def stage(self, index: int) -> "HoldingStage":
        """Return a stage of the replica, and which of its ranks hold the sequence."""
        own = int(self.degrees.tp * self.degrees.cp)
        size = own * int(self.degrees.attention_dp)
        begin = self.first_rank + index * size
        return HoldingStage(range(begin, begin + size), self.attention_rank * own, own)


class HoldingStage(NamedTuple):
    """The ranks of a stage, of which ``holders`` from the place ``first`` on hold a sequence: tp fastest, then cp."""

    ranks: range
    first: int
    holders: int


class CacheMove(NamedTuple):
    """Bytes of a sequence's cache that one rank gives to another."""

    source: int
    target: int
    size_bytes: int


class Wanted(NamedTuple):
    """Bytes that a rank needs, and the places of the ranks that hold them; ``place`` is the taker's among these."""

    taker: int
    place: int
    copies: tuple[int, ...]
    size_bytes: int


def hand_over_bytes(
    model: ModelGraph,
    tokens: int,
    formats: StorageFormats,
    sender: ReplicaDegrees,
    receiver: ReplicaDegrees,
    domain: int,
    block_tokens: int = 1,
) -> MovedBytes:
    """Return what the hand-over of a sequence of ``tokens`` moves; ``domain`` ranks in a row share a fast domain."""
    behind = int(sender.devices)
    if behind + int(receiver.devices) > domain:
        behind = ceil(behind / domain) * domain
    places = Place(sender), Place(receiver, behind)
    return busiest_bytes(cache_moves(model, tokens, formats, *places, block_tokens), domain)


def cache_moves(
    model: ModelGraph,
    tokens: int,
    formats: StorageFormats,
    sender: Place,
    receiver: Place,
    block_tokens: int = 1,
) -> Iterator[CacheMove]:
    """Yield the moves of one sequence, layer by layer; those of equal layers without copies together."""
    layers, given = served_layers(model), Counter[int]()
    stages = [_stage_of_layers(len(layers), int(place.degrees.pp)) for place in (sender, receiver)]
    for (index, *ends), count in Counter(zip(layers, *stages, strict=True)).items():
        ends_of = sender.stage(ends[0]), receiver.stage(ends[1])
        layouts = (
            _layouts(model.blocks[index], tokens, place.degrees, formats, block_tokens)
            for place in (sender, receiver)
        )
        wanted = [
            one for before, after in zip(*layouts, strict=True) for one in _wanted(before, after, *ends_of)
        ]
        together = count if all(len(one.copies) == 1 for one in wanted) else 1
        for _ in range(count // together):
            for one in wanted:
                giver = _least_busy(one, ends_of[0].ranks, given)
                given[giver] += together * one.size_bytes
                yield CacheMove(giver, one.taker, together * one.size_bytes)


def _least_busy(one: "Wanted", ranks: range, given: Counter[int]) -> int:
    """Return the holder that has given least so far, the nearest of several."""
    least = min(given[ranks[copy]] for copy in one.copies)
    open_ = [copy for copy in one.copies if given[ranks[copy]] == least]
    return nearest_holder(open_, one.place, ranks, one.taker)


def _layouts(
    block: Block, tokens: int, degrees: ReplicaDegrees, formats: StorageFormats, block_tokens: int
) -> list[CacheLayout]:
    found = (cache_layouts(op, tokens, degrees, formats, block_tokens) for op in block.operators)
    return [layout for layouts in found for layout in layouts]


def _stage_of_layers(layers: int, pp: int) -> list[int]:
    return [stage for stage, count in enumerate(layers_of_stages(layers, pp)) for _ in range(count)]


def _wanted(
    source: CacheLayout, target: CacheLayout, givers: HoldingStage, takers: HoldingStage
) -> Iterator[Wanted]:
    """Yield what ranks need of one layer's cache: of a head, the blocks that a pair of ranks of cp have in common."""
    shared = _shared_blocks(source, target)
    for own in range(takers.holders):
        cp, tp = divmod(own, target.tp)
        place = givers.first + own * givers.holders // takers.holders
        for head in target.heads_of(tp):
            for given, blocks in enumerate(shared[:, cp % target.cp]):
                if blocks:
                    at = givers.first + given * source.tp
                    copies = [at + of for of in range(source.tp) if head in source.heads_of(of)]
                    size = round(int(blocks) * source.block_bytes)
                    yield Wanted(takers.ranks[takers.first + own], place, tuple(copies), size)


def _shared_blocks(source: CacheLayout, target: CacheLayout) -> NDArray[np.int64]:
    """Return how many blocks each rank of cp of the source has in common with each of the target's."""
    blocks = np.arange(source.blocks)
    pairs = blocks % source.cp * target.cp + blocks % target.cp
    return np.bincount(pairs, minlength=source.cp * target.cp).reshape(source.cp, target.cp)
