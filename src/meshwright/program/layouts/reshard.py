"""Convert one layout of a tensor to another by a sequence of collectives.

With |T| the whole tensor's bytes and p ranks along the axis, all ranks together send (OneFlow, arXiv 2110.15032,
table 2; ring algorithms):

==============  ==============  =======================
from → to       collective      bytes
==============  ==============  =======================
S(i) → S(j)     all-to-all      (p−1)/p·|T|
S → R           all-gather      (p−1)·|T|
P → S           reduce-scatter  (p−1)·|T|
P → R           all-reduce      2(p−1)·|T|
R, S → P, R → S slice           0: a rank keeps a part, or fills up with zeros
==============  ==============  =======================

An axis can only be taken from a dim that no later axis cuts too, so axes leave a dim innermost first and enter it
outermost first. Of all moves that are possible, the first of ``PREFERENCE`` is made: moves that shrink what a rank
holds come before those that grow it. The sequence is right for any pair of layouts; it is not always the shortest
(two axes that change places on one dim meet in between as replicas). Layouts on different grids over the same ranks
are joined by one all-to-all among all ranks in which each rank gets what it lacks from one that has it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from meshwright.program.layouts.tensor_layout import Layout, Partial, Placement, Replicate, Shard, overlaps

TransferKind = Literal["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "slice"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """One step from ``source`` to ``target``, in every group over ``axes`` ("world": all ranks).

    ``logical_bytes`` are those of the largest group, counted as ``items.Collective`` counts them; ``sent_bytes``
    is what all ranks together send, exactly, also where cuts are uneven.
    """

    kind: TransferKind
    axes: tuple[str, ...]
    source: Layout
    target: Layout
    logical_bytes: int
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class _Move:
    kind: TransferKind
    axis: str
    placement: Placement


def reshard(source: Layout, target: Layout, shape: Sequence[int], itemsize: int) -> tuple[Transfer, ...]:
    """Return the transfers from ``source`` to ``target`` for a tensor of ``shape``, ``itemsize`` bytes each."""
    if source.grid != target.grid:
        return _between_grids(source, target, shape, itemsize)
    transfers = []
    while (move := _next_move(source, target)) is not None:
        after = source.moved(move.axis, move.placement)
        transfers.append(_transfer(move, source, after, shape, itemsize))
        source = after
    return tuple(transfers)


def _next_move(current: Layout, target: Layout) -> _Move | None:
    axes = dict.fromkeys([*target.placements, *current.placements])
    unsettled = [axis for axis in axes if not _settled(axis, current, target)]
    for rule in PREFERENCE:
        for axis in unsettled:
            move = rule(axis, current, target)
            if move is not None:
                return move
    assert not unsettled, "no move leads on"
    return None


def _settled(axis: str, current: Layout, target: Layout) -> bool:
    """Return true if an axis has its target placement: it cuts the right dim inside the same axes."""
    have, want = current.placement(axis), target.placement(axis)
    if have != want or not isinstance(want, Shard):
        return have == want
    here, there = current.cutters(want.dim), target.cutters(want.dim)
    depth = here.index((axis, want)) + 1
    return here[:depth] == there[:depth]


def _enters(axis: str, current: Layout, target: Layout) -> Shard | None:
    """Return the cut that an axis can make now; None if it has none or can not make it yet."""
    want = target.placement(axis)
    if not isinstance(want, Shard):
        return None
    there = target.cutters(want.dim)
    before = there[: there.index((axis, want))]
    here = tuple(cutter for cutter in current.cutters(want.dim) if cutter[0] != axis)
    return want if here == before else None


def _innermost(axis: str, current: Layout) -> bool:
    have = current.placement(axis)
    return isinstance(have, Shard) and current.cutters(have.dim)[-1][0] == axis


def _cut_replica(axis: str, current: Layout, target: Layout) -> _Move | None:
    shard = _enters(axis, current, target)
    if shard is None or not isinstance(current.placement(axis), Replicate):
        return None
    return _Move("slice", axis, shard)


def _cut_sum(axis: str, current: Layout, target: Layout) -> _Move | None:
    shard = _enters(axis, current, target)
    if shard is None or not isinstance(current.placement(axis), Partial):
        return None
    return _Move("reduce-scatter", axis, shard)


def _change_cut(axis: str, current: Layout, target: Layout) -> _Move | None:
    shard = _enters(axis, current, target)
    return _Move("all-to-all", axis, shard) if shard and _innermost(axis, current) else None


def _add_up(axis: str, current: Layout, target: Layout) -> _Move | None:
    ends = isinstance(current.placement(axis), Partial) and isinstance(target.placement(axis), Replicate)
    return _Move("all-reduce", axis, Replicate()) if ends else None


def _gather(axis: str, current: Layout, target: Layout) -> _Move | None:
    fits = not isinstance(target.placement(axis), Partial) and _innermost(axis, current)
    return _Move("all-gather", axis, Replicate()) if fits else None


def _become_summand(axis: str, current: Layout, target: Layout) -> _Move | None:
    free = isinstance(current.placement(axis), Replicate) or _innermost(axis, current)
    fits = isinstance(target.placement(axis), Partial)
    return _Move("slice", axis, Partial()) if fits and free else None


PREFERENCE: tuple[Callable[[str, Layout, Layout], _Move | None], ...] = (
    _cut_replica,
    _cut_sum,
    _change_cut,
    _add_up,
    _gather,
    _become_summand,
)


def _transfer(move: _Move, source: Layout, target: Layout, shape: Sequence[int], itemsize: int) -> Transfer:
    """Bytes of one move; a group of n ranks that hold a tensor of t bytes together sends (n−1)·t a ring pass."""
    size = source.grid.sizes[move.axis]
    whole, logical = prod(shape), source.largest_local(shape)
    if move.kind == "slice":
        logical = sent = 0
    elif move.kind == "all-to-all":
        sent = whole * source.copies - _kept(move, source, target, shape)
    elif move.kind == "all-gather":
        logical = target.largest_local(shape)
        sent = (size - 1) * whole * target.copies // size
    else:
        passes = 2 if move.kind == "all-reduce" else 1
        sent = passes * (size - 1) * whole * source.copies // size
    return Transfer(move.kind, (move.axis,), source, target, itemsize * logical, itemsize * sent)


def _kept(move: _Move, source: Layout, target: Layout, shape: Sequence[int]) -> int:
    """Elements that stay on their rank in an all-to-all, over all ranks."""
    have, want = source.placement(move.axis), target.placement(move.axis)
    assert isinstance(have, Shard)
    assert isinstance(want, Shard)
    old, new = source.pieces(have.dim, shape[have.dim]), target.pieces(want.dim, shape[want.dim])
    others = prod(length for dim, length in enumerate(shape) if dim not in (have.dim, want.dim))
    if have.dim == want.dim:
        return source.copies * others * sum(overlaps(old, new))
    size = source.grid.sizes[move.axis]
    both = sum(_length(old[i::size]) * _length(new[i::size]) for i in range(size))
    return source.copies * others * both


def _length(intervals: Sequence[tuple[int, int]]) -> int:
    return sum(stop - start for start, stop in intervals)


def _between_grids(
    source: Layout, target: Layout, shape: Sequence[int], itemsize: int
) -> tuple[Transfer, ...]:
    """Reduce partial sums on the source's grid, then fetch missing parts on every rank."""
    assert source.grid.ranks == target.grid.ranks, "the grids are not over the same ranks"
    plain = {a: p for a, p in source.placements.items() if not isinstance(p, Partial)}
    whole = Layout(source.grid, plain)
    lacking = sum(_lacks(rank, whole, target, shape) for rank in range(source.grid.ranks))
    exchange = Transfer(
        kind="all-to-all",
        axes=("world",),
        source=whole,
        target=target,
        logical_bytes=itemsize * whole.largest_local(shape),
        sent_bytes=itemsize * lacking,
    )
    return (*reshard(source, whole, shape, itemsize), exchange)


def _lacks(rank: int, source: Layout, target: Layout, shape: Sequence[int]) -> int:
    """Elements that a rank needs and has not; of a sum's ranks only the first of each axis needs any."""
    place = target.grid.coordinates(rank)
    if any(place[axis] for axis in target.partial_axes):
        return 0
    have, want = source.local_slice(rank, shape), target.local_slice(rank, shape)
    needed = prod(part.stop - part.start for part in want)
    both = overlaps([(s.start, s.stop) for s in have], [(s.start, s.stop) for s in want])
    return needed - prod(both)
