"""Compute the transfers of a tied table's gradient between the ranks of the embedding and those of the head. Pure.

Both hold the table, in layouts that may cut it otherwise: over tp by rows, and over the ranks that share states. Behind
its reduction a rank has the gradient of one interval of the table's elements, row by row, without padding. It sends the
parts of it that ranks on the other side hold, and adds what it gets. Of several ranks with equal intervals the one at
the nearest place among its pipeline rank's ranks sends.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from meshwright.program.layouts.activation_transfers import nearest_holder
from meshwright.program.program_parts import Part, ProgramParts

SHARED_BY: tuple[str, ...] = ("cp", "dp_shard")
"""The axes over which dense states are cut, as ``StateMesh.shard`` has them."""
Interval = tuple[int, int]
TableEnds = tuple[tuple[int, int], tuple[int, int]]
"""(part, pipeline rank) of the embedding and of the head."""


class TableTransfer(NamedTuple):
    """Elements of the table that one rank's gradient gives to another's."""

    source: int
    target: int
    elements: Interval


def balanced(length: int, parts: int, *, first: bool) -> tuple[int, ...]:
    """Return the bounds of pieces that differ by one element at most, the longer ones first or last."""
    size, longer = divmod(length, parts)
    long = range(longer) if first else range(parts - longer, parts)
    return (0, *accumulate(size + (part in long) for part in range(parts)))


def held_elements(part: Part, rank: int, rows: int, width: int) -> Interval:
    """Return the interval of the table whose reduced gradient a rank has; ``rows`` without padding."""
    own = int(part.shape.padded_vocab(rows)) // int(part.shape.tp) * width
    start = part.grid.coordinates(rank)["tp"] * own
    shards = int(part.shape.shard)
    at = part.grid.group_of(rank, SHARED_BY).index(rank) if shards > 1 else 0
    bounds = balanced(own, shards, first=True)
    low, high = start + bounds[at], start + bounds[at + 1]
    return min(low, rows * width), min(high, rows * width)


def table_transfers(parts: ProgramParts, ends: TableEnds, rows: int, width: int) -> Iterator[TableTransfer]:
    """Yield the transfers between both ``ends``, (part, pipeline rank) of the embedding and of the head, both ways."""
    for (source, giving), (target, taking) in (ends, ends[::-1]):
        givers, takers = parts.members(giving), parts.members(taking)
        copies: dict[Interval, list[int]] = defaultdict(list)
        for place, rank in enumerate(givers):
            copies[held_elements(parts[source], rank, rows, width)].append(place)
        for place, rank in enumerate(takers):
            wanted = held_elements(parts[target], rank, rows, width)
            for interval, holders in copies.items():
                low, high = max(interval[0], wanted[0]), min(interval[1], wanted[1])
                if low < high:
                    giver = nearest_holder(holders, place, givers, rank)
                    yield TableTransfer(giver, rank, (low, high))


def busiest_elements(transfers: Iterable[TableTransfer]) -> int:
    """Return the most elements that one rank sends or receives."""
    sent: Counter[tuple[str, int]] = Counter()
    for one in transfers:
        sent["out", one.source] += one.elements[1] - one.elements[0]
        sent["in", one.target] += one.elements[1] - one.elements[0]
    return max(sent.values(), default=0)


def of_rank(transfers: Sequence[TableTransfer], rank: int) -> tuple[list[TableTransfer], list[TableTransfer]]:
    """Return what a rank gives and what it takes."""
    return [one for one in transfers if one.source == rank], [one for one in transfers if one.target == rank]
