"""Sequence positions of each cp rank, and attention masks between two ranks' positions. Pure.

A sequence is cut over the ring ranks first: with head and tail into 2·r pieces, of which ring rank i has pieces i and
2r − 1 − i, else into r pieces. What a ring rank has is then cut, in order, over the ranks that exchange heads.
Positions are *stretches* (start, stop) in the order in which a rank holds them.

A causal mask between two stretches hides all, hides nothing, or is the usual triangle; so attention between two ranks
is a few *tiles* of rows and columns, most of them without a mask. Documents that share a sequence are stretches of it,
too: what is seen of two parts of a sequence is what is seen of their parts of each document.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

from meshwright.plans.context_parallel import SequencePieces

CONTEXT_PARTS = ("cp_ulysses", "cp_ring")
"""The two dimensions of cp, the faster varying one first."""

Stretch = tuple[int, int]
Stretches = tuple[Stretch, ...]


def ring_stretches(seq_len: int, ring: int, order: SequencePieces, place: int) -> Stretches:
    """Return the stretches of ring rank ``place`` of ``ring``."""
    if ring == 1:
        return ((0, seq_len),)
    if order == "contiguous":
        piece = seq_len // ring
        return ((place * piece, (place + 1) * piece),)
    piece = seq_len // (2 * ring)
    return _joined([(i * piece, (i + 1) * piece) for i in (place, 2 * ring - 1 - place)])


def rank_stretches(seq_len: int, cp: int, ulysses: int, order: SequencePieces, place: int) -> Stretches:
    """Return the stretches of rank ``place`` of cp; neighbours exchange heads."""
    outer, inner = divmod(place, ulysses)
    length = seq_len // cp
    return part_of_stretches(
        ring_stretches(seq_len, cp // ulysses, order, outer), inner * length, (inner + 1) * length
    )


def part_of_stretches(stretches: Stretches, start: int, stop: int) -> Stretches:
    """Return elements start … stop of what some stretches hold one after the other."""
    found, at = [], 0
    for first, last in stretches:
        low, high = max(start, at), min(stop, at + last - first)
        if low < high:
            found.append((first + low - at, first + high - at))
        at += last - first
    return tuple(found)


def _joined(stretches: list[Stretch]) -> Stretches:
    """Neighbours that follow each other made one."""
    found: list[Stretch] = []
    for start, stop in stretches:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return tuple(found)


Sight = Literal["all", "causal", "window"]
"""What a tile's rows see of its columns: all, those up to their own, or what a window leaves."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows of one rank's queries and columns of another's keys (slices of what each holds), and what is seen.

    ``behind`` is how many positions the first row lies behind the first column: what a window needs to know.
    """

    rows: Stretch
    columns: Stretch
    sees: Sight
    behind: int


def tiles(
    queries: Stretches, keys: Stretches, window: int | None = None, documents: Stretches = ()
) -> tuple[Tile, ...]:
    """Return the tiles that the mask leaves visible. Without a window, fully visible neighbours merge.

    ``documents`` are all those of a sequence, in order; () for a sequence that is one.
    """
    rows, columns = _placed(queries), _placed(keys)
    if not documents:
        return _tiles(rows, columns, window)
    return tuple(
        tile
        for document in documents
        for tile in _tiles(_inside(rows, document), _inside(columns, document), window)
    )


Placed = tuple[Stretch, Stretch]
"""Elements of what a rank holds, and their positions."""


def _tiles(queries: Sequence[Placed], keys: Sequence[Placed], window: int | None) -> tuple[Tile, ...]:
    if queries and queries == keys and window is None and _ascending(queries):
        rows = queries[0][0][0], queries[-1][0][1]
        return (Tile(rows, rows, "causal", 0),)
    found = [
        tile
        for rows, query in queries
        for columns, key in keys
        for tile in _between(rows, query, columns, key, window)
    ]
    return _merged(found) if window is None else tuple(found)


def _ascending(placed: Sequence[Placed]) -> bool:
    return all(a[1][1] <= b[1][0] for a, b in pairwise(placed))


def _placed(stretches: Stretches) -> list[Placed]:
    """Each stretch with its place in what a rank holds."""
    found, at = [], 0
    for start, stop in stretches:
        found.append(((at, at + stop - start), (start, stop)))
        at += stop - start
    return found


def _inside(placed: Sequence[Placed], document: Stretch) -> list[Placed]:
    """Return the parts of stretches that lie in a document."""
    found = []
    for (at, _), (start, stop) in placed:
        first, last = max(start, document[0]), min(stop, document[1])
        if first < last:
            found.append(((at + first - start, at + last - start), (first, last)))
    return found


def _between(
    rows: Stretch, query: Stretch, columns: Stretch, key: Stretch, window: int | None
) -> tuple[Tile, ...]:
    """Return the tiles of one stretch of queries and one of keys: at most a full one and a triangle."""
    if query[1] <= key[0] or (window is not None and query[0] - (key[1] - 1) >= window):
        return ()
    behind = query[0] - key[0]
    if window is not None and query[1] - 1 - key[0] >= window:
        return (_within(rows, query, columns, key, window),)
    if query[0] >= key[1] - 1:
        return (Tile(rows, columns, "all", behind),)
    if behind < 0:
        return _between((rows[0] - behind, rows[1]), (key[0], query[1]), columns, key, window)
    if query[1] < key[1]:
        seen = query[1] - key[0]
        return _between(rows, query, (columns[0], columns[0] + seen), (key[0], query[1]), window)
    if query[1] > key[1]:
        low = key[1] - query[0]
        near = _between((rows[0], rows[0] + low), (query[0], key[1]), columns, key, window)
        return (*near, Tile((rows[0] + low, rows[1]), columns, "all", key[1] - key[0]))
    if behind == 0:
        return (Tile(rows, columns, "causal", 0),)
    own = columns[0] + behind
    return (
        Tile(rows, (columns[0], own), "all", behind),
        Tile(rows, (own, columns[1]), "causal", 0),
    )


def _within(rows: Stretch, query: Stretch, columns: Stretch, key: Stretch, window: int) -> Tile:
    """Return the rows and columns of two stretches that a window leaves visible."""
    near, far = max(0, key[0] - query[0]), max(0, query[1] - (key[1] - 1 + window))
    old, late = max(0, query[0] + near - window + 1 - key[0]), max(0, key[1] - query[1])
    rows = (rows[0] + near, rows[1] - far)
    return Tile(rows, (columns[0] + old, columns[1] - late), "window", query[0] + near - key[0] - old)


def _merged(found: list[Tile]) -> tuple[Tile, ...]:
    """Neighbouring tiles that see all put together: first those of the same rows, then those of the same columns."""
    full = sorted((t for t in found if t.sees == "all"), key=lambda t: (t.rows, t.columns))
    wide = [
        Tile(rows, columns, "all", 0)
        for rows, row in groupby(full, key=lambda t: t.rows)
        for columns in _joined([t.columns for t in row])
    ]
    wide.sort(key=lambda t: (t.columns, t.rows))
    merged = [
        Tile(rows, columns, "all", 0)
        for columns, column in groupby(wide, key=lambda t: t.columns)
        for rows in _joined([t.rows for t in column])
    ]
    return (*merged, *(t for t in found if t.sees != "all"))
