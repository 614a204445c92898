"""Time of a pipeline without backward passes (``schedules/forward_only_lists.py``), exact, over arrays of plans.

N equal jobs on ranks that are ready at a_r end on rank r at

    max over s ≤ r of  a_s + Σ_{i=s..r} F_i + messages + (N − 1)·max_{i=s..r} F_i:

a path through the jobs starts at some rank s, goes on to the next rank r − s times, and stays N − 1 times for the next
job, best of all where that takes longest.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def forward_only_seconds(
    forward: Floats, message: Floats, pause: Floats, micro_batches: Ints, *, split: bool
) -> Floats:
    """Return when all ranks have ended both passes over parameters and all forward passes: (n,).

    ``forward`` and ``pause`` are the seconds of a rank's forward pass and pass over parameters, (n, P); ``message``
    those of a message, (n,), for N ``micro_batches``. ``split``: the second pause comes last.
    """
    turn = micro_batches if split else micro_batches // 2
    ended = _ended(pause, forward, message, turn) + pause
    return np.asarray((ended if split else _ended(ended, forward, message, micro_batches - turn)).max(1))


def _ended(ready: Floats, forward: Floats, message: Floats, jobs: Ints) -> Floats:
    """Return when each rank has ended so many jobs: (n, P)."""
    path, slowest, ended = ready.copy(), np.zeros_like(ready), np.empty_like(ready)
    for rank in range(forward.shape[1]):
        here = forward[:, rank, None]
        path[:, :rank] += message[:, None]
        path[:, : rank + 1] += here
        slowest[:, : rank + 1] = np.maximum(slowest[:, : rank + 1], here)
        ended[:, rank] = (path[:, : rank + 1] + (jobs[:, None] - 1) * slowest[:, : rank + 1]).max(1)
    return ended
