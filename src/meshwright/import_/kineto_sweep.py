"""Who owns each moment of a step: computing, communicating, copying, or nobody, and why nobody.

One sweep over all starts and ends. Computation owns the moments in which any of it runs, so communication owns only
what nothing covers (its exposed part); where several kinds are exposed at once they share the moment equally. Copies
come last. A moment without work is the host's where the device's queue was empty when it began: the call that launched
what comes next had not returned by then. Else the next work was there and waited for something else.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.import_.kineto_steps import NEVER, Windows
from meshwright.import_.kineto_trace import Ints

Floats = NDArray[np.float64]

SHARED = 2
"""Rank of the classes that may be hidden under others, and whose hidden part is of interest."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Nanoseconds in all windows. ``owned`` and ``hidden`` by class; idle time of the host's making and the rest."""

    owned: Floats
    hidden: Floats
    host_idle: float
    waiting: float


def sweep(
    start: Ints, end: Ints, owner: Ints, ranks: tuple[int, ...], launched: Ints, windows: Windows
) -> Shares:
    """Divides the windows among classes of events.

    ``owner`` is the class of each event and ``ranks`` says which class has a moment first: those below ``SHARED``
    compute and cover others, those at it communicate. ``launched`` is when the call had launched an event.
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
    """Between which edges any of the events runs."""
    change = np.bincount(np.searchsorted(edges, start), minlength=len(edges))
    change = change - np.bincount(np.searchsorted(edges, end), minlength=len(edges))
    return np.cumsum(change)[:-1] > 0


def _launched_late(edges: Ints, start: Ints, end: Ints, launched: Ints) -> NDArray[np.bool_]:
    """For every piece without work: whether what comes next was launched after the last work had ended.

    True where nothing comes any more, False where the launch of the next is unknown.
    """
    if not len(start):
        return np.ones(len(edges) - 1, np.bool_)
    known = np.where(launched == NEVER, np.iinfo(np.int64).max, launched)
    order = np.lexsort((known, start))  # of events that begin together, the one that was launched first
    start, last_end, launched = start[order], np.maximum.accumulate(end[order]), launched[order]
    following = np.searchsorted(start, edges[1:], side="left")
    before = np.where(following > 0, last_end[np.maximum(following, 1) - 1], NEVER)
    none_left = following == len(start)
    launch = launched[np.minimum(following, len(start) - 1)]
    return none_left | ((launch != NEVER) & (launch > before))
