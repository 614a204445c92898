"""Clients of a pair of pools whose decoding replicas are filled to some sequences, and the limits that this keeps."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.disaggregated import PoolPair
from meshwright.verbs.plan.serving.pools.load_capacity import SATURATION
from meshwright.verbs.plan.serving.pools.load_limits import LoadLimits

Floats = NDArray[np.float64]
CLIENT_STEPS = 12
MANY = 2.0**20
"""Times over which a plan is looked at to see how its limits hold in the end."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownDecoding:
    """Decoding at one number of sequences, whose seconds are known."""

    load: Any
    limits: Any
    steps: Any
    seconds: Floats

    def decode_s(self, batch: Any) -> Floats:
        """Return the seconds of an iteration."""
        return self.seconds


def clients_of(pair: PoolPair, sequences: Floats) -> Floats:
    """Return the clients of which so many sequences decode in each replica: N = R_d·b + X·TTFT(X, N)."""
    requests, closed = np.asarray(pair.requests_per_s(sequences)), np.ones(len(sequences), dtype=np.bool_)
    decoding = np.asarray(pair.decode_replicas) * sequences
    clients = decoding
    for _ in range(CLIENT_STEPS):
        clients = decoding + requests * np.asarray(pair.first_token_s(requests, clients, closed))
    return clients


def over_limits(pair: PoolPair, sequences: Floats, limits: LoadLimits) -> Floats:
    """Return TTFT and the load of prefill where so many sequences decode, the worse of both as a part of its limit."""
    requests = np.asarray(pair.requests_per_s(sequences))
    ttft = (clients_of(pair, sequences) - np.asarray(pair.decode_replicas) * sequences) / requests
    return np.maximum(ttft / limits.ttft_s, requests / (SATURATION * np.asarray(pair.prompts_per_s)))


def in_time(pair: PoolPair, sequences: Floats, limits: LoadLimits) -> NDArray[np.bool_]:
    """Return true where TTFT and the load of prefill are within their limits."""
    return np.asarray(over_limits(pair, sequences, limits) <= 1)


def filled(pair: PoolPair, sequences: Floats, limits: LoadLimits) -> tuple[NDArray[np.bool_], Floats]:
    """Return whether TTFT is within its limit where decoding replicas are full, and the clients that fill them.

    Clients are the least whole number that keeps every replica at ``sequences``.
    """
    requests = np.asarray(pair.requests_per_s(sequences))
    clients = np.ceil(clients_of(pair, sequences) * (1 + 1e-9))
    ttft = (clients - np.asarray(pair.decode_replicas) * sequences) / requests
    fine = (requests <= SATURATION * np.asarray(pair.prompts_per_s)) & (ttft <= limits.ttft_s)
    return fine, clients


def clients_many_times_over(pair: PoolPair, sequences: Floats) -> Floats:
    """Return the clients of ``clients_of`` as part of very many equal copies, where prompts do not wait."""
    many = replace(
        pair,
        prefill_replicas=pair.prefill_replicas * MANY,
        transfers_per_s=np.asarray(pair.transfers_per_s) * MANY,
    )
    requests, decoding = (
        np.asarray(pair.requests_per_s(sequences)),
        np.asarray(pair.decode_replicas) * sequences,
    )
    closed, clients = np.ones(len(sequences), dtype=np.bool_), decoding
    for _ in range(CLIENT_STEPS):
        clients = decoding + requests * np.asarray(
            many.first_token_s(requests * MANY, clients * MANY, closed)
        )
    return clients
