"""Steady state of a serving replica by Little's law.

With X requests/s, b sequences that decode, and TPOT(b) of ``phase_times.py``:

    b = X·(osl − 1)·TPOT(b),     N = X·(TTFT + (osl − 1)·TPOT)

Closed loop of N clients: the b at which both hold, found by bisection; b + X·TTFT grows with b. Where it is above the
limit of cache or sequences b is the limit, and requests wait for the rest: TTFT = N/X − (osl − 1)·TPOT.
Open arrivals: X is given, b the smallest solution; above X(limit) there is none (``capacity``). A rate of infinity
takes the limit as b. Of one output token b is 0 and N = X·TTFT, at most one prompt after the other.

    TTFT = prompt_s + t_d/2 + own + W,   W = ρ/(1 − ρ)·occupied/2·(N − 1)/N,   ρ = X·occupied

own: the prompt's prefill; t_d/2: the iteration under way; W: prompts before it, of constant length (Pollaczek and
Khinchine; with N clients one sees the N − 1 others). A closed loop begins with all N prompts at once, whose TTFT is
(N + 1)/2·full in the mean; ``burst_share`` of the requests are those.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.phase_times import PhasesAtBatch, PhaseTimes
from meshwright.program.local_shape import Number

HALVINGS = 22
"""Bisections in the logarithm of b, from 1e-6 of the upper end: to 1e-6 relative."""
LEAST = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An engine's seconds outside iterations for each prompt, and the share of requests that begin a closed loop."""

    prompt_s: float = 0.0
    burst_share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState:
    """Means of a replica: seconds, requests/s, sequences that decode, and what limits it. NaN: there is none."""

    ttft_s: NDArray[Any]
    tpot_s: NDArray[Any]
    requests_per_s: NDArray[Any]
    batch: NDArray[Any]
    limited_by: NDArray[Any]

    def output_tokens_per_s(self, output_tokens: Number) -> NDArray[Any]:
        """Return the output tokens/s of the replica."""
        return self.requests_per_s * output_tokens


def steady_state(phases: PhaseTimes, waiting: Waiting) -> SteadyState:
    """Return the steady state of replicas. A rate goes before a concurrency."""
    load, limits = phases.load, phases.limits
    clients, rate, largest = np.broadcast_arrays(
        *(np.asarray(x, float) for x in (load.concurrency, load.rate_per_s, limits.sequences))
    )
    closed = np.isnan(rate)
    upper = np.where(closed, np.minimum(largest, clients), largest)
    full, steps = phases.full_s(), phases.steps

    def ttft(batch: Number, at: PhasesAtBatch) -> Number:
        return _first_token_s(at, np.where(closed, clients, np.inf), full, waiting, closed)

    def too_many(batch: Number) -> NDArray[np.bool_]:
        at = phases.at(batch)
        requests = batch / (steps * at.tpot_s)
        in_loop = batch + requests * ttft(batch, at) > clients
        return np.where(closed, in_loop, requests > rate)

    generates = np.broadcast_to(steps > 0, upper.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        batch = _bisect(too_many, upper)
        at = phases.at(batch)
        requests = batch / (steps * at.tpot_s)
        full_up = batch >= largest * (1 - 1e-5)
        first = np.where(closed & full_up, clients / requests - steps * at.tpot_s, ttft(batch, at))
        overloaded = ~closed & (rate > requests * (1 + 1e-5))
        first = np.where(overloaded, np.nan, first)
    alone = _prefill_only(phases, waiting, clients, rate, full)
    return SteadyState(
        ttft_s=np.where(generates, first, alone[0]),
        tpot_s=np.where(generates, at.tpot_s, np.nan),
        requests_per_s=np.where(generates, requests, alone[1]),
        batch=np.where(generates, batch, 0.0),
        limited_by=_limited_by(phases, full_up & generates, overloaded, np.isinf(rate)),
    )


def _bisect(too_many: Callable[[Number], NDArray[np.bool_]], upper: NDArray[Any]) -> NDArray[Any]:
    """Return the largest batch up to ``upper`` that is not too many, by halving an interval of logarithms."""
    high = np.maximum(upper, LEAST)
    fits = ~too_many(high)
    low = np.minimum(LEAST, high) * np.ones_like(high)
    high_end = high
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        over = too_many(middle)
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    return np.where(fits, high_end, np.sqrt(low * high))


def _first_token_s(
    at: PhasesAtBatch, clients: Number, full: Number, waiting: Waiting, closed: NDArray[np.bool_]
) -> Number:
    """Return the mean seconds to the first token."""
    busy = np.minimum(at.prefill_share, 1 - 1e-9)
    others = np.where(np.isinf(clients), 1.0, np.maximum(clients - 1, 0.0) / np.maximum(clients, 1.0))
    queue = busy / (1 - busy) * at.occupied_s / 2 * others
    steady = at.own_s + at.decode_s / 2 + queue
    burst = np.where(closed, np.maximum((clients + 1) / 2 * full, at.own_s), steady)
    share = waiting.burst_share
    return waiting.prompt_s + (1 - share) * steady + share * burst


def _prefill_only(
    phases: PhaseTimes, waiting: Waiting, clients: Number, rate: Number, full: Number
) -> tuple[Number, Number]:
    """Return TTFT and requests/s of requests with one output token."""
    own = phases.at(0.0).own_s + waiting.prompt_s
    with np.errstate(divide="ignore", invalid="ignore"):
        in_loop = np.maximum(own, clients * full)
        busy = np.where(np.isinf(rate), 1.0, rate * full)
        arriving = np.where(busy < 1, own + busy / (1 - busy) * full / 2, np.nan)
        closed = np.isnan(rate)
        requests = np.where(closed, clients / in_loop, np.minimum(rate, 1 / full))
    return np.where(closed, in_loop, arriving), requests


def _limited_by(
    phases: PhaseTimes, full_up: NDArray[Any], overloaded: NDArray[Any], unbounded: NDArray[Any]
) -> NDArray[Any]:
    """Return the name of the limit; empty where neither room nor sequences nor capacity is."""
    room = np.asarray(phases.limits.room_sequences) <= np.asarray(phases.limits.max_sequences)
    of_batch = np.where(room, "kv_room", "max_sequences")
    return np.where(overloaded & ~unbounded, "capacity", np.where(full_up, of_batch, ""))
