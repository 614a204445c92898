"""The largest load that a replica carries within limits on its mean latencies, for arrays of replicas.

With b sequences that decode, TPOT(b), X(b) = b/((osl − 1)·TPOT) and TTFT(b, N) are those of a steady state
(``cost/serving/steady_state.py``), with N = b + X·TTFT clients. The largest b at which all limits hold is looked for on
a grid of factors of two downwards from the room of the cache, and then by false position between the grid's point and
the next one: TTFT need not grow with b where an engine holds prompts back. Of one output token X = min(N/own, 1/full)
and TTFT = max(own, N·full).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.monotone_root import increasing_root
from meshwright.cost.serving.phase_times import PhasesAtBatch, PhaseTimes
from meshwright.cost.serving.steady_state import Queue, Waiting
from meshwright.verbs.plan.serving.pools.load_limits import AT_MOST, LoadLimits

Floats = NDArray[np.float64]
LIGHTEST = 1e-3
"""Sequences of the lightest load that is looked at: a client is served by many replicas."""
HALVINGS = 24
NO_PART = 1e-30
"""Part of an infinite limit, whose logarithm is a number."""
SATURATION = 0.98
"""Share of the time that a replica or a pool computes prompts at most: queues grow without end towards 1."""
FIXED_POINT_STEPS = 40
PEAK_STEPS = 30
GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True, eq=False)
class LargestLoad:
    """For each replica: sequences that decode, clients and requests/s at the load of most requests; 0: there is none.

    ``least_ttft_s`` and ``least_tpot_s`` are means at the lightest load. ``full``: the cache has no room for more, so
    that further clients only wait.
    """

    batch: Floats
    clients: Floats
    requests_per_s: Floats
    least_ttft_s: Floats
    least_tpot_s: Floats
    full: NDArray[np.bool_]

    @property
    def carries(self) -> NDArray[np.bool_]:
        """True where there is such a load."""
        return self.clients > 0


@dataclass(frozen=True, slots=True, eq=False)
class _Means:
    """Means where some sequences decode in each replica."""

    ttft_s: Floats
    tpot_s: Floats
    clients: Floats
    requests_per_s: Floats

    def over(self, limits: LoadLimits) -> Floats:
        """Return the worst mean as a part of its limit."""
        return np.maximum(np.maximum(self.ttft_s / limits.ttft_s, self.tpot_s / limits.tpot_s), NO_PART)


def largest_load(phases: PhaseTimes, waiting: Waiting, limits: LoadLimits) -> LargestLoad:
    """Return the largest load of replicas whose ``phases`` are given."""
    if limits.steps <= 0:
        return _of_prompts(phases, waiting, limits)
    room = np.asarray(phases.limits.sequences, float)

    def means(batch: Floats) -> _Means:
        return _means(phases, waiting, limits, batch)

    grid = np.maximum(room * 0.5 ** np.arange(HALVINGS)[:, None], LIGHTEST)
    on_grid = means(grid)
    held = on_grid.over(limits) <= 1
    any_held, place = held.any(axis=0), held.argmax(axis=0)
    low = np.take_along_axis(grid, place[None], 0)[0]
    high = np.take_along_axis(grid, np.maximum(place - 1, 0)[None], 0)[0]
    found = increasing_root(lambda batch: means(batch).over(limits), np.full_like(room, AT_MOST), high, low)
    heights = np.where(held, on_grid.requests_per_s, 0.0)
    found = _peak(lambda batch: means(batch).requests_per_s, found, grid, heights)
    at, lightest = means(found), means(np.full_like(room, LIGHTEST))
    return LargestLoad(
        batch=np.where(any_held, found, 0.0),
        clients=np.where(any_held, at.clients, 0.0),
        requests_per_s=np.where(any_held, at.requests_per_s, 0.0),
        least_ttft_s=lightest.ttft_s,
        least_tpot_s=lightest.tpot_s,
        full=any_held & (found >= room * (1 - 1e-9)),
    )


def _peak(requests: Callable[[Floats], Floats], largest: Floats, grid: Floats, heights: Floats) -> Floats:
    """Return the sequences at most requests/s up to the largest ones, by golden section around the best of a grid.

    Requests/s grow with sequences but for few written tokens, where prompts delay each other more than they gain.
    """
    best = heights.argmax(axis=0)
    inside = np.take_along_axis(heights, best[None], 0)[0] > requests(largest)
    if not inside.any():
        return largest
    above = np.take_along_axis(grid, np.maximum(best - 1, 0)[None], 0)[0]
    below = np.take_along_axis(grid, np.minimum(best + 1, len(grid) - 1)[None], 0)[0]
    low, high = np.log(below), np.log(np.minimum(above, largest))
    for _ in range(PEAK_STEPS):
        first, second = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        rises = requests(np.exp(second)) > requests(np.exp(first))
        low, high = np.where(rises, first, low), np.where(rises, high, second)
    return np.where(inside, np.exp((low + high) / 2), largest)


def most_sequences(phases: PhaseTimes, tpot_s: float, *, mixed: bool) -> Floats:
    """Return the most sequences that decode in a replica at a mean TPOT; 0 where one is too slow."""
    room = np.asarray(phases.limits.sequences, float)
    if np.isinf(tpot_s) or not np.any(phases.steps):
        return room

    def seconds(batch: Floats) -> Floats:
        return np.asarray(phases.at(batch).tpot_s if mixed else phases.decode_s(batch))

    found = increasing_root(seconds, np.full_like(room, tpot_s * AT_MOST), room)
    return np.where(seconds(np.full_like(room, LIGHTEST)) <= tpot_s, found, 0.0)


def most_requests(phases: PhaseTimes, limits: LoadLimits, batch: Floats) -> Floats:
    """Return the requests/s of a replica in which ``batch`` sequences decode."""
    if limits.steps <= 0:
        return np.asarray(1 / np.asarray(phases.full_s, float))
    return np.asarray(batch / (limits.steps * np.asarray(phases.at(batch).tpot_s)))


def _means(phases: PhaseTimes, waiting: Waiting, limits: LoadLimits, batch: Floats) -> _Means:
    at = phases.at(batch)
    with np.errstate(divide="ignore", invalid="ignore"):
        requests = batch / (limits.steps * np.asarray(at.tpot_s))
    ttft, clients = _first_token(phases, waiting, limits, (at, batch, requests))
    return _Means(ttft, np.asarray(at.tpot_s), clients, requests)


def _first_token(
    phases: PhaseTimes, waiting: Waiting, limits: LoadLimits, state: tuple[PhasesAtBatch, Floats, Floats]
) -> tuple[Floats, Floats]:
    """Return TTFT and the clients N = b + X·TTFT(N), by iteration: TTFT grows little with N."""
    at, batch, requests = state
    closed = np.full(batch.shape, limits.closed)
    clients = batch
    for _ in range(FIXED_POINT_STEPS):
        ttft = np.asarray(Queue(phases, waiting, clients, closed).first_token_s(at))
        before, clients = clients, batch + requests * ttft
        if not limits.closed or np.all(np.abs(clients - before) <= 1e-12 * clients):
            break
    return ttft, clients


def _of_prompts(phases: PhaseTimes, waiting: Waiting, limits: LoadLimits) -> LargestLoad:
    full = np.asarray(phases.full_s, float)
    own = np.asarray(phases.at(np.zeros_like(full)).own_s) + waiting.prompt_s
    held = own <= limits.ttft_s
    if limits.closed:
        clients = np.minimum(limits.ttft_s * AT_MOST / full, np.ceil(own / full))
        requests = np.minimum(clients / own, 1 / full)
    else:
        slack = 2 * (limits.ttft_s - own) / full
        busy = np.minimum(np.where(np.isinf(slack), SATURATION, slack / (1 + slack)), SATURATION)
        requests = busy / full
        clients = requests * own
    return LargestLoad(
        batch=np.zeros_like(full),
        clients=np.where(held, clients, 0.0),
        requests_per_s=np.where(held, requests, 0.0),
        least_ttft_s=own,
        least_tpot_s=np.zeros_like(full),
        full=np.zeros(full.shape, dtype=np.bool_),
    )
