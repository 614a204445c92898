"""Choose a strategy for each layer of a stage: exact dynamic programming with memory as state.

The problem: layers in a row, each with one of S strategies. A strategy costs a layer seconds and bytes; neighbours with
different strategies cost the seconds of a change of layout. A stage holds the bytes of all its layers and the largest
``peak`` of them, together at most a capacity. Wanted is the least time.

A *label* is what is known of a row of layers: its bytes, its largest peak, its seconds, and the class of its last
strategy. Classes have equal changes of layout. Of the labels of one class those that another one beats in all three
numbers are dropped (Galvatron's recurrence, arXiv 2211.13878, equation 6, has memory in whole units in their place).
Where more than ``most_labels`` remain in a class, of those within a fraction of the capacity the quickest stays, with
its bytes as they are: then what is found fits, and may be slower than the best.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST_LABELS = 400
FEW_ROWS = 64
"""So few rows are compared one by one faster than in arrays."""


@dataclass(frozen=True, eq=False)
class LayerCosts:
    """Costs of S strategies: seconds, bytes and peaks of each kind of layer, (kinds, S).

    ``change`` has the seconds of a change from one strategy to another: (S, S).

    Infinite seconds: the layer can not have the strategy.
    """

    seconds: Floats
    bytes: Floats
    peak: Floats
    change: Floats
    classes: Ints = field(init=False)

    def __post_init__(self) -> None:
        both = np.concatenate([self.change, self.change.T], 1)
        _, classes = np.unique(both, axis=0, return_inverse=True)
        object.__setattr__(self, "classes", classes.reshape(-1))


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of a row of layers; ``last`` is the strategy of the last one, ``parent`` the label of the row before."""

    bytes: Floats
    peak: Floats
    seconds: Floats
    last: Ints
    parent: Ints
    before: "Labels | None" = None

    def strategies(self, label: int) -> tuple[int, ...]:
        """Return the strategy of every layer of a label, the first layer first."""
        found: list[int] = []
        row: Labels | None = self
        while row is not None:
            found.append(int(row.last[label]))
            label, row = int(row.parent[label]), row.before
        return tuple(reversed(found))

    def best(self, capacity: float) -> int | None:
        """Return the quickest label within the capacity; None where there is none."""
        fits = self.bytes + self.peak <= capacity
        if not fits.any():
            return None
        return int(np.where(fits, self.seconds, np.inf).argmin())


@dataclass(frozen=True)
class LayerAssignment:
    """Seconds and bytes of a row of layers, and the strategy of each."""

    seconds: float
    bytes: float
    strategies: tuple[int, ...]


def grouped(kinds: Sequence[int], strategies: Sequence[int], classes: Ints) -> tuple[int, ...]:
    """Return the strategies of equal layers in a row, sorted where no layout changes between them.

    That costs nothing, and makes few ranges of many.
    """
    found: list[int] = []
    rows = zip(kinds, strategies, strict=True)
    for _, run in groupby(rows, key=lambda row: (row[0], int(classes[row[1]]))):
        found += sorted(strategy for _, strategy in run)
    return tuple(found)


class ChainLabels:
    """Labels of rows of layers, known by the kinds of their layers."""

    def __init__(self, costs: LayerCosts, capacity: float, most_labels: int = MOST_LABELS) -> None:
        self.costs, self.capacity, self.most = costs, capacity, most_labels
        self.known: dict[tuple[int, ...], Labels] = {}

    def of(self, kinds: tuple[int, ...]) -> Labels:
        """Return the labels of a row with layers of these kinds, one or more."""
        if kinds not in self.known:
            before = self.of(kinds[:-1]) if len(kinds) > 1 else None
            self.known[kinds] = self._extended(before, kinds[-1])
        return self.known[kinds]

    def assignment(self, kinds: Sequence[int]) -> "LayerAssignment | None":
        """Return the quickest assignment of a row within the capacity; None where there is none."""
        labels = self.of(tuple(kinds))
        best = labels.best(self.capacity)
        if best is None:
            return None
        held = float(labels.bytes[best] + labels.peak[best])
        strategies = grouped(kinds, labels.strategies(best), self.costs.classes)
        return LayerAssignment(float(labels.seconds[best]), held, strategies)

    def _extended(self, before: Labels | None, kind: int) -> Labels:
        costs, strategies = self.costs, np.flatnonzero(np.isfinite(self.costs.seconds[kind]))
        if before is None:
            found = Labels(
                costs.bytes[kind, strategies],
                costs.peak[kind, strategies],
                costs.seconds[kind, strategies],
                strategies,
                np.zeros_like(strategies),
            )
        else:
            parent = np.repeat(np.arange(len(before.last)), len(strategies))
            last = np.tile(strategies, len(before.last))
            found = Labels(
                before.bytes[parent] + costs.bytes[kind, last],
                np.maximum(before.peak[parent], costs.peak[kind, last]),
                before.seconds[parent] + costs.change[before.last[parent], last] + costs.seconds[kind, last],
                last,
                parent,
                before,
            )
        possible = np.isfinite(found.seconds) & (found.bytes + found.peak <= self.capacity)
        return _taken(found, self._kept(found, np.flatnonzero(possible)))

    def _kept(self, found: Labels, rows: Ints) -> Ints:
        """Return the rows that no other label of their class beats."""
        kept, classes = [], self.costs.classes[found.last[rows]]
        for of_class in np.flatnonzero(np.bincount(classes)):
            mine = rows[classes == of_class]
            mine = mine[undominated(found.bytes[mine], found.peak[mine], found.seconds[mine])]
            kept.append(self._thinned(found, mine) if len(mine) > self.most else mine)
        return np.concatenate(kept) if kept else rows

    def _thinned(self, found: Labels, rows: Ints) -> Ints:
        """Return the quickest row of each step of bytes."""
        step = np.floor(found.bytes[rows] / self.capacity * self.most).astype(np.int64)
        order = np.lexsort((found.seconds[rows], step))
        _, first = np.unique(step[order], return_index=True)
        return np.sort(rows[order[first]])


def _taken(labels: Labels, rows: Ints) -> Labels:
    return Labels(
        labels.bytes[rows],
        labels.peak[rows],
        labels.seconds[rows],
        labels.last[rows],
        labels.parent[rows],
        labels.before,
    )


def undominated(*costs: Floats) -> Ints:
    """Return the rows that no other row beats or equals in bytes, peak and seconds; of equal rows the first."""
    size, peak, seconds = costs
    if len(size) <= 1:
        return np.arange(len(size))
    order = np.lexsort((seconds, peak, size))
    if len(order) <= FEW_ROWS:
        return _undominated_by_row(order, peak.tolist(), seconds.tolist())
    peaks, levels = np.unique(peak[order], return_inverse=True)
    if len(peaks) > len(order) ** 0.5 + 8:
        return _undominated_by_row(order, peak.tolist(), seconds.tolist())
    keep, of_order = np.zeros(len(order), dtype=np.bool_), seconds[order]
    for level in range(len(peaks)):
        below = np.where(levels <= level, of_order, np.inf)
        before = np.concatenate([[np.inf], np.minimum.accumulate(below)[:-1]])
        keep |= (levels == level) & (of_order < before)
    return np.sort(order[keep])


def _undominated_by_row(order: Ints, peak: Sequence[float], seconds: Sequence[float]) -> Ints:
    """As ``undominated``, of rows in ascending order of their bytes, then peaks, then seconds.

    The front has the peaks of rows so far, ascending, and the least seconds up to each of them, descending.
    """
    kept: list[int] = []
    peaks: list[float] = []
    least: list[float] = []
    for row in order.tolist():
        first, stop = bisect_left(peaks, peak[row]), bisect_right(peaks, peak[row])
        if stop and least[stop - 1] <= seconds[row]:
            continue
        kept.append(row)
        while stop < len(peaks) and least[stop] >= seconds[row]:
            stop += 1
        peaks[first:stop], least[first:stop] = [peak[row]], [seconds[row]]
    return np.array(sorted(kept), dtype=np.int64)


def least_seconds(
    costs: LayerCosts, kinds: Sequence[int], capacity: float, most_labels: int = MOST_LABELS
) -> tuple[float, tuple[int, ...]] | None:
    """Return the least seconds of a stage and the strategy of each of its layers; None where nothing fits."""
    found = ChainLabels(costs, capacity, most_labels).assignment(kinds)
    return None if found is None else (found.seconds, found.strategies)
