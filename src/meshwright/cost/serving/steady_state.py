"""Steady state of a serving replica by Little's law.

With X requests/s, b sequences that decode, and TPOT(b) of ``phase_times.py``:

    b = X·(osl − 1)·TPOT(b),     N = X·(TTFT + (osl − 1)·TPOT)

Closed loop of N clients: the b at which both hold, found by false position; b + X·TTFT grows with b. Where it is above
the limit of cache or sequences b is the limit, and requests wait for the rest: TTFT = N/X − (osl − 1)·TPOT.
Open arrivals: X is given, b the smallest solution; above X(limit) there is none (``capacity``). A rate of infinity
takes the limit as b. Of one output token b is 0 and N = X·TTFT, at most one prompt after the other.

    TTFT = prompt_s + t_d/2 + own + W,   W = ρ/(1 − ρ)·occupied/2·(N − 1)/N,   ρ = X·occupied

own: the prompt's prefill, and the iterations that an engine holds it back; t_d/2: the iteration under way; W: prompts
before it, of constant length (Pollaczek and Khinchine; with N clients one sees the N − 1 others). A closed loop begins
with all N prompts at once, whose TTFT is (N + 1)/2·full in the mean; ``burst_share`` of the requests are those.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.monotone_root import increasing_root
from meshwright.cost.serving.phase_times import PhasesAtBatch, PhaseTimes
from meshwright.cost.serving.replica_load import ReplicaLimits
from meshwright.program.local_shape import Number


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
    arrays = (load.concurrency, load.rate_per_s, limits.sequences, phases.steps)
    clients, rate, largest, steps = np.broadcast_arrays(*(np.asarray(x, float) for x in arrays))
    queue = Queue(phases, waiting, clients, np.isnan(rate))
    alone = _prefill_only(queue, rate)
    with np.errstate(divide="ignore", invalid="ignore"):
        batch = _batch(queue, rate, largest)
        at = phases.at(batch)
        requests = batch / (np.maximum(steps, 1.0) * at.tpot_s)
        full_up = batch >= largest * (1 - 1e-9)
        left = clients / requests - steps * at.tpot_s
        first = np.where(queue.closed & full_up, left, queue.first_token_s(at))
    generates = steps > 0
    requests = np.where(generates, requests, alone[1])
    overloaded = ~queue.closed & (rate > requests * (1 + 1e-6))
    return SteadyState(
        ttft_s=np.where(generates, np.where(overloaded, np.nan, first), alone[0]),
        tpot_s=np.where(generates, at.tpot_s, np.nan),
        requests_per_s=requests,
        batch=np.where(generates, batch, 0.0),
        limited_by=limit_name(limits, full_up & generates, overloaded & ~np.isinf(rate)),
    )


@dataclass(frozen=True, slots=True)
class Queue:
    """Prompts that wait for the first token: ``clients`` of a closed loop where it is ``closed``, else arrivals."""

    phases: PhaseTimes
    waiting: Waiting
    clients: NDArray[Any]
    closed: NDArray[np.bool_]

    def first_token_s(self, at: PhasesAtBatch) -> Number:
        """Return the mean seconds to the first token."""
        busy = np.minimum(at.prefill_share, 1 - 1e-9)
        others = np.where(self.closed, np.maximum(1 - 1 / np.maximum(self.clients, 1.0), 0.0), 1.0)
        queued = busy / (1 - busy) * at.occupied_s / 2 * others
        steady = at.own_s + at.decode_s / 2 + queued + at.gathering_iterations * at.tpot_s
        at_once = np.maximum((self.clients + 1) / 2 * self.phases.full_s, at.own_s)
        share = np.where(self.closed, self.waiting.burst_share, 0.0)
        return self.waiting.prompt_s + (1 - share) * steady + share * np.where(self.closed, at_once, 0.0)


def _batch(queue: Queue, rate: NDArray[Any], largest: NDArray[Any]) -> NDArray[Any]:
    """Return the sequences that decode."""
    phases, closed = queue.phases, queue.closed
    upper = np.where(closed, np.minimum(largest, queue.clients), largest)

    def in_system(batch: NDArray[Any]) -> NDArray[Any]:
        at = phases.at(batch)
        requests = batch / (np.maximum(phases.steps, 1.0) * at.tpot_s)
        return np.where(closed, batch + requests * queue.first_token_s(at), requests)

    target = np.where(closed, queue.clients, np.where(np.isinf(rate), np.finfo(float).max, rate))
    return increasing_root(in_system, target, upper)


def _prefill_only(queue: Queue, rate: NDArray[Any]) -> tuple[Number, Number]:
    """Return TTFT and requests/s of requests with one output token."""
    full = queue.phases.full_s
    own = queue.phases.at(np.zeros_like(rate)).own_s + queue.waiting.prompt_s
    with np.errstate(divide="ignore", invalid="ignore"):
        in_loop = np.maximum(own, queue.clients * full)
        busy = np.where(np.isinf(rate), 1.0, rate * full)
        arriving = np.where(busy < 1, own + busy / (1 - busy) * full / 2, np.nan)
        requests = np.where(queue.closed, queue.clients / in_loop, np.minimum(rate, 1 / full))
    return np.where(queue.closed, in_loop, arriving), requests


def limit_name(
    limits: ReplicaLimits, full_up: NDArray[np.bool_], overloaded: NDArray[np.bool_]
) -> NDArray[Any]:
    """Return the name of the limit; empty where neither room nor sequences nor capacity is."""
    room = np.asarray(limits.room_sequences) <= np.asarray(limits.max_sequences)
    of_batch = np.where(room, "kv_room", "max_sequences")
    return np.where(overloaded, "capacity", np.where(full_up, of_batch, ""))
