"""Steady state of a pool of replicas that prefill and one of replicas that decode, by Little's law.

With X requests/s, R_p and R_d replicas, b sequences that decode in each of the latter, and full seconds of a prompt
where a prefill replica is full of prompts (``phase_times.py``):

    R_d·b = X·(osl − 1)·t_d(b),     N = X·(TTFT + (osl − 1)·TPOT),     TPOT = t_d(b)
    TTFT = prompt_s + own + W + hand-over,   W = full/2·ρ^{√(2(R_p + 1)) − 1}/(R_p·(1 − ρ)),   ρ = X·full/R_p

W is Sakasegawa's approximation for several servers (1977), for prompts of constant length. Prompts do not delay tokens.
A closed loop begins with all N prompts at once, as in one pool. ``capacity``: prompts come faster than prefill replicas
compute, or sequences than decode replicas hold. As the limit of prefill is neared W takes up all clients that are left.
Where links carry fewer caches/s than prompts are computed (``kv_transfers.py``), R_p/full is their rate, in W and as a
limit: ``handover`` where they are nearly always busy.
"""

from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.monotone_root import increasing_root
from meshwright.cost.serving.replica_load import ReplicaLimits, ReplicaLoad
from meshwright.cost.serving.steady_state import SteadyState, Waiting, limit_name
from meshwright.program.local_shape import Number

LIGHTEST = 1e-12
BUSY_LINKS = 0.95
"""Share of the time that links carry caches from which on the hand-over limits the requests."""


class OwnSeconds(Protocol):
    """Seconds of a prompt by itself."""

    @property
    def own_s(self) -> Number:
        """Seconds of the prompt's own prefill."""
        ...


class PrefillTimes(Protocol):
    """Seconds of prefill replicas that a pair of pools depends on: those of ``PhaseTimes``, or known ones."""

    @property
    def full_s(self) -> Number:
        """Seconds of a prompt among others."""
        ...

    def at(self, batch: Number, /) -> OwnSeconds:
        """Return the seconds where ``batch`` sequences decode."""
        ...


class DecodeTimes(Protocol):
    """Seconds of decoding replicas that a pair of pools depends on: those of ``PhaseTimes``, or of a table."""

    @property
    def load(self) -> ReplicaLoad:
        """Load of all replicas."""
        ...

    @property
    def limits(self) -> ReplicaLimits:
        """Limits of one replica."""
        ...

    @property
    def steps(self) -> Number:
        """Tokens of a request that are decoded after the first one."""
        ...

    def decode_s(self, batch: Number, /) -> Number:
        """Return the seconds of an iteration of ``batch`` sequences."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPair:
    """Pools of replicas under one load, which both ``PhaseTimes`` have as that of all replicas together."""

    prefill: PrefillTimes
    prefill_replicas: Number
    decode: DecodeTimes
    decode_replicas: Number
    hand_over_s: Number
    waiting: Waiting
    transfers_per_s: Number = inf

    @property
    def links_limit(self) -> NDArray[np.bool_]:
        """True where links carry fewer caches/s than the prefill pool computes."""
        return np.asarray(self.transfers_per_s < self.prefill_replicas / self.prefill.full_s)

    @property
    def prompts_per_s(self) -> Number:
        """The most prompts/s that the prefill pool computes and links hand over."""
        return np.minimum(self.prefill_replicas / self.prefill.full_s, self.transfers_per_s)

    def requests_per_s(self, batch: Number) -> Number:
        """Return the requests/s of which ``batch`` sequences decode in each replica."""
        steps = np.maximum(self.decode.steps, 1.0)
        return self.decode_replicas * batch / (steps * self.decode.decode_s(batch))

    def first_token_s(self, requests: Number, clients: Number, closed: NDArray[np.bool_]) -> Number:
        """Return the mean seconds to the first token."""
        servers = np.asarray(self.prefill_replicas, float)
        computed, carried = self.prefill_replicas / self.prefill.full_s, self.transfers_per_s
        full = np.where(carried < computed, servers / carried, self.prefill.full_s)
        busy = np.clip(requests / np.minimum(computed, carried), LIGHTEST, 1 - 1e-9)
        queued = full / 2 * busy ** (np.sqrt(2 * (servers + 1)) - 1) / (servers * (1 - busy))
        own = self.prefill.at(np.zeros_like(busy)).own_s
        at_once = np.maximum((clients + 1) / 2 * full / servers, own)
        share = np.where(closed, self.waiting.burst_share, 0.0)
        steady = own + queued
        first = (1 - share) * steady + share * np.where(closed, at_once, 0.0)
        return self.waiting.prompt_s + first + self.hand_over_s


def disaggregated_state(pools: PoolPair) -> SteadyState:
    """Return the steady state of both pools: requests/s of all replicas, sequences of one that decodes."""
    load, limits = pools.decode.load, pools.decode.limits
    arrays = (load.concurrency, load.rate_per_s, limits.sequences, pools.decode.steps, pools.prompts_per_s)
    clients, rate, largest, steps, most = np.broadcast_arrays(*(np.asarray(x, float) for x in arrays))
    closed = np.isnan(rate)

    def in_system(batch: NDArray[Any]) -> NDArray[Any]:
        requests = pools.requests_per_s(batch)
        waiting = pools.first_token_s(requests, clients, closed)
        inside = pools.decode_replicas * batch + requests * waiting
        beyond = np.maximum(requests / most, 1.0)
        return np.where(closed, inside * beyond, requests)

    aim = np.where(np.isinf(rate), most, np.minimum(rate, most))
    target = np.where(closed, clients, aim)
    upper = np.where(closed, np.minimum(largest, clients / pools.decode_replicas), largest)
    with np.errstate(divide="ignore", invalid="ignore"):
        batch = increasing_root(in_system, target, upper)
        requests = np.minimum(pools.requests_per_s(batch), most)
        tpot = np.asarray(pools.decode.decode_s(batch))
        full_up = batch >= largest * (1 - 1e-9)
        left = clients / requests - steps * tpot
        waits = closed & (full_up | (requests >= most * (1 - 1e-6)))
        first = np.where(waits, left, pools.first_token_s(requests, clients, closed))
    overloaded = ~closed & (rate > requests * (1 + 1e-6))
    named = limit_name(limits, full_up, overloaded & ~np.isinf(rate))
    busy_links = pools.links_limit & (requests >= BUSY_LINKS * most) & (named == "")
    return SteadyState(
        ttft_s=np.where(overloaded, np.nan, first),
        tpot_s=tpot,
        requests_per_s=requests,
        batch=batch,
        limited_by=np.where(busy_links, "handover", named),
    )
