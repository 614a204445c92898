"""Tell a slow link from a slow rank by the times of messages between all pairs of ranks. Pure.

Element (s, r) of the matrix is the seconds of a message from the s-th rank to the r-th. A slow link is one slow cell in
each direction, a slow rank a whole slow row and column (C4, arXiv 2406.04594, section 4). A cell is compared with its
own time at the begin of the run and, from three ranks on, with the other cells; what is slow is measured again before
it is named.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from meshwright.runtime.faults.fault import Fault

Matrix = NDArray[np.float64]
Pair = tuple[int, int]
SLOW = 4.0
"""Times its healthy duration, and the growth of other links, that make a message slow: the shortest of several messages
varies by less than 2 on a busy host."""
MOST_OF_ROW = 0.75
"""Part of a rank's links that must be slow for the rank itself to be at fault."""
LEAST_S = 2e-4
"""Seconds below which a message counts as quick: a few wake-ups of a process."""


def rounds(ranks: int) -> list[list[Pair]]:
    """Return rounds of disjoint pairs in which each pair of ranks meets once (circle method)."""
    players = list(range(ranks + ranks % 2))
    found = []
    for _ in range(len(players) - 1):
        pairs = zip(players[: len(players) // 2], reversed(players[len(players) // 2 :]), strict=True)
        found.append([(min(a, b), max(a, b)) for a, b in pairs if max(a, b) < ranks])
        players = [players[0], players[-1], *players[1:-1]]
    return found


def slow_pairs(now: Matrix, healthy: Matrix | None) -> list[Pair]:
    """Return the pairs (smaller index first) that are slow; NaN stands for what was not measured.

    Growth is relative to that of the other link that has grown least: if a rank is slow, most links have grown.
    """
    pairs = [pair for pair in _pairs(len(now)) if np.isfinite(now[pair])]
    times = {pair: _slower_way(now, pair) for pair in pairs}
    if healthy is None:
        return [pair for pair in pairs if times[pair] > max(LEAST_S, SLOW * _median_of_others(times, pair))]
    growth = {pair: times[pair] / _slower_way(healthy, pair) for pair in pairs}
    return [
        pair
        for pair in pairs
        if times[pair] > LEAST_S
        and growth[pair] > SLOW * max(1.0, min((growth[of] for of in pairs if of != pair), default=1.0))
    ]


def _pairs(ranks: int) -> list[Pair]:
    return [(a, b) for a in range(ranks) for b in range(a + 1, ranks)]


def _slower_way(times: Matrix, pair: Pair) -> float:
    return float(max(times[pair], times[pair[::-1]]))


def _median_of_others(times: Mapping[Pair, float], pair: Pair) -> float:
    others = [seconds for other, seconds in times.items() if other != pair]
    return float(np.median(others)) if others else np.inf


def named_by_matrix(
    slow: Collection[Pair], ranks: Sequence[int], now: Matrix, healthy: Matrix | None, step: int
) -> Iterator[Fault]:
    """Yield a fault for each rank whose links are slow, and for each slow link between other ranks."""
    size, left = len(ranks), set(slow)
    for index in range(size) if size > 2 else ():
        own = {pair for pair in slow if index in pair}
        if len(own) > 1 and len(own) >= MOST_OF_ROW * (size - 1):
            left -= own
            text = f"its messages with {len(own)} of {size - 1} ranks take {_figures(own, now, healthy)}"
            yield Fault(kind="slow", rank=ranks[index], step=step, evidence=text)
    rest = [_slower_way(now, pair) for pair in _pairs(size) if pair not in slow]
    for a, b in sorted(left):
        text = f"a message takes {_figures([(a, b)], now, healthy)}"
        text += f", {np.median(rest) * 1e3:.3g} ms between other ranks" if rest else ""
        yield Fault(kind="link", rank=ranks[a], peer=ranks[b], step=step, evidence=text)


def _figures(pairs: Collection[Pair], now: Matrix, healthy: Matrix | None) -> str:
    times = float(np.median([_slower_way(now, pair) for pair in pairs]))
    text = f"{times * 1e3:.3g} ms"
    if healthy is None:
        return text
    before = float(np.median([_slower_way(healthy, pair) for pair in pairs]))
    return (
        text
        if not np.isfinite(before)
        else f"{text}, {times / before:.1f} times the {before * 1e3:.3g} ms before"
    )
