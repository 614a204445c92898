"""The workload of serving: requests of given lengths, how many of them, and limits on their latency."""

from dataclasses import dataclass

from meshwright.workload.serving.request_lengths import RequestLengths

MAX_CONCURRENCY = 2**24
MAX_RATE_PER_S = 1e9
MAX_OBJECTIVE_MS = 1e9


@dataclass(frozen=True, slots=True)
class Objectives:
    """Limits on mean latencies in ms: ``ttft_ms`` to the first token, ``tpot_ms`` for each token after it.

    None: no limit.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None


NO_LIMITS = Objectives()


@dataclass(frozen=True, slots=True)
class ServingWorkload:
    """Requests and their load on the whole cluster.

    ``concurrency``: a closed loop of so many requests, each followed by the next. ``rate_per_s``: requests that arrive
    in a second, however many are still being served. At most one of them is given; neither: the load is open.
    """

    lengths: RequestLengths
    concurrency: int | None = None
    rate_per_s: float | None = None
    objectives: Objectives = NO_LIMITS
