"""Attribute each moment of a step: to computing, communicating, copying, or idle, and each idle moment to a cause.

One sweep over all starts and ends. Computation owns the moments in which any of it runs, so communication owns only
its exposed part; kinds that are exposed at once share the moment equally. Copies come last. A moment without work is
the host's if the device's queue was empty at its begin: the call that launched the next work had not returned by then.
Otherwise the next work was queued and waited for something else.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.ingestion.kineto.rank_trace import Ints
from meshwright.ingestion.kineto.step_windows import NEVER, Windows

Floats = NDArray[np.float64]

SHARED = 2
"""Priority of the classes that others may hide, and whose hidden part is reported."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Nanoseconds in all windows: ``owned`` and ``hidden`` by class; idle time caused by the host, and the rest."""

    owned: Floats
    hidden: Floats
    host_idle: float
    waiting: float


def attribute_time(
    start: Ints, end: Ints, owner: Ints, ranks: tuple[int, ...], launched: Ints, windows: Windows
) -> Shares:
    """Divide the windows among classes of events.

    ``owner`` is the class of each event and ``ranks`` the classes' priorities: those below ``SHARED`` compute and cover
    others, those at it communicate. ``launched`` is the time at which an event's launch returned.
    """
    edges = np.unique(np.concatenate([start, end, windows.start, windows.end]))
    lengths = np.diff(edges)
    lengths = np.where(_active(edges, windows.start, windows.end), lengths, 0).astype(np.float64)
    active = np.array([_active(edges, start[owner == c], end[owner == c]) for c in range(len(ranks))])
    owned, hidden = np.zeros(len(ranks)), np.zeros(len(ranks))
    free, covered = np.ones(len(lengths), np.bool_), np.zeros(len(lengths), np.bool_)
    for level in sorted(set(ranks)):
        classes = [c for c, rank in enumerate(ranks) if rank == level]
        running = active[classes].sum(axis=0)
        share = np.where(free, lengths, 0.0) / np.maximum(running, 1)
        for c in classes:
            owned[c] = share[active[c]].sum()
            hidden[c] = lengths[active[c] & covered].sum() if level == SHARED else 0.0
        free &= running == 0
        covered |= (running > 0) & (level < SHARED)
    late = _launched_late(edges, start, end, launched)
    idle = np.where(free, lengths, 0.0)
    return Shares(owned, hidden, float(idle[late].sum()), float(idle[~late].sum()))


def _active(edges: Ints, start: Ints, end: Ints) -> NDArray[np.bool_]:
    """Return, for each interval between edges, whether any of the events runs."""
    change = np.bincount(np.searchsorted(edges, start), minlength=len(edges))
    change = change - np.bincount(np.searchsorted(edges, end), minlength=len(edges))
    return np.cumsum(change)[:-1] > 0


def _launched_late(edges: Ints, start: Ints, end: Ints, launched: Ints) -> NDArray[np.bool_]:
    """Return, for each idle interval, whether the next work was launched after the last work had ended.

    True if no work follows, False if the launch of the next is unknown.
    """
    if not len(start):
        return np.ones(len(edges) - 1, np.bool_)
    known = np.where(launched == NEVER, np.iinfo(np.int64).max, launched)
    order = np.lexsort((known, start))  # by start, then by launch
    start, last_end, launched = start[order], np.maximum.accumulate(end[order]), launched[order]
    following = np.searchsorted(start, edges[1:], side="left")
    before = np.where(following > 0, last_end[np.maximum(following, 1) - 1], NEVER)
    none_left = following == len(start)
    launch = launched[np.minimum(following, len(start) - 1)]
    return none_left | ((launch != NEVER) & (launch > before))
