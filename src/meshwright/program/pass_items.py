"""The items of a pass over a block: compute, collectives, and collectives that overlap compute.

Collectives count *logical* bytes: the whole tensor that the group holds together (the result of an all-gather, the
input of a reduce-scatter, reduce or all-reduce, one rank's tokens in an all-to-all, sent or back, a whole ring's
key-value bytes, a message, what one rank broadcasts).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from meshwright.model.operators.operator_types import Operator
from meshwright.program.expert_dispatch.dispatch_forms import LEGS, DeduplicatedBytes
from meshwright.program.layouts.rank_mesh import RankGrid
from meshwright.program.local_shape import Number
from meshwright.program.reshard import Reshard

Phase = Literal["F", "I", "W", "R"]
CollectiveKind = Literal[
    "all-gather", "reduce-scatter", "all-reduce", "all-to-all", "ring", "p2p", "broadcast", "reduce"
]


@dataclass(frozen=True, slots=True)
class Compute:
    """One operator in one phase: F forward, I input gradient, W weight gradient, R forward run again."""

    operator: Operator
    phase: Phase


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective over the group of ``axes``; ``logical_bytes`` as in the module's text.

    ``part`` is the index of the part of the Program whose meshes have these axes.

    ``once``: a token goes once to each node that has some of its experts, and once to each rank there
    (``program/expert_dispatch/dispatch_forms.py``). ``routed``: the bytes are those of balanced routing; one group
    moves more and another less, all together as many, or with ``once`` as many as tokens reach ranks and nodes.

    ``entry`` is the number of the entry of ``synchronise`` that encodes it; its bytes are encoded ones.

    ``alternatives`` bring the same results in other ways; the quickest runs.
    """

    kind: CollectiveKind
    axes: tuple[str, ...]
    logical_bytes: Number
    what: str
    phase: Phase = "F"
    once: DeduplicatedBytes | None = None
    routed: bool = False
    part: int = 0
    entry: int | None = None
    alternatives: tuple["Collective", ...] = ()


@dataclass(frozen=True, slots=True)
class Overlap:
    """Collectives that overlap compute; the pair ends when both have ended."""

    compute: tuple[Compute, ...]
    overlapped: tuple[Collective, ...]


Item = Compute | Collective | Overlap


def exchanges_of(item: Item) -> tuple[Collective, ...]:
    """Return the collectives of an item."""
    if isinstance(item, Compute):
        return ()
    return (item,) if isinstance(item, Collective) else item.overlapped


def on_part(collectives: Iterable[Collective], part: int) -> tuple[Collective, ...]:
    """Return collectives on the meshes of a part."""
    return tuple(one if one.part == part else replace(one, part=part) for one in collectives)


def item_on_part(item: Item, part: int) -> Item:
    """Return an item whose collectives run on the meshes of a part."""
    if isinstance(item, Compute):
        return item
    if isinstance(item, Collective):
        return on_part((item,), part)[0]
    return replace(item, overlapped=on_part(item.overlapped, part))


def legs_of(item: Collective, experts: RankGrid) -> tuple[Collective, ...]:
    """Return the legs of a collective on the experts' mesh, in order towards the experts."""
    if item.once is None or not experts.parts:
        return (item,)
    sizes = item.once.across_bytes, item.once.inside_bytes
    legs = zip(LEGS["hierarchical"], sizes, strict=True)
    return tuple(replace(item, axes=axes, logical_bytes=size) for axes, size in legs)


PassKind = Literal["F", "B", "I", "W", "E", "S", "T", "D"]


@dataclass(frozen=True, slots=True)
class Segment:
    """``count`` equal layers (or an embedding, or a head) in a row, in one pass.

    ``block`` is the index of the block in the model, None for a collective that nothing hides, or for a ``reshard``:
    a change of layout between two blocks. ``overlapped`` are collectives that overlap each of the ``count``: parameters
    of the next layer, gradients of the last one.
    """

    block: int | None
    kind: PassKind
    count: int
    overlapped: tuple[Collective, ...] = ()
    reshard: Reshard | None = None


Body = tuple[Segment, ...]
