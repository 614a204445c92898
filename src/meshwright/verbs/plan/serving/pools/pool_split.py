"""Numbers of replicas of pairs of pools, and the pools of the cost model that they are.

Of a pair every number R_d of replicas that decode is tried, with R_p on all other devices, which never makes a first
token later; where cost counts, with fewer as well. At a rate it is the fewest of both that carry it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.disaggregated import DecodeTimes, PoolPair
from meshwright.cost.serving.replica_load import ReplicaLimits
from meshwright.search.serving.candidate_table import Goal
from meshwright.search.serving.replica_counts import replica_counts
from meshwright.verbs.plan.serving.pools.iteration_table import UNCERTAIN, TabulatedDecoding
from meshwright.verbs.plan.serving.pools.load_capacity import SATURATION
from meshwright.verbs.plan.serving.pools.load_limits import LoadLimits
from meshwright.verbs.plan.serving.pools.pool_pairs import DecodeSide, PoolPairs, PrefillSide, known_prefill

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
ROUNDING = 1 + 1e-6
"""Factor by which bounds are loosened, so that rounding rules out nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolSplits:
    """Numbers of replicas of pairs, a row each: rows of ``PrefillSide`` and ``DecodeSide``, and hand-overs.

    ``sent_per_s`` and ``received_per_s``: caches/s of the links of one replica of each pool.
    """

    prefill: Rows
    decode: Rows
    hand_over_s: Floats
    sent_per_s: Floats
    received_per_s: Floats
    fill_replicas: Rows
    write_replicas: Rows

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.prefill)

    def take(self, rows: Any) -> "PoolSplits":
        """Return some rows."""
        return PoolSplits(*(getattr(self, name)[rows] for name in PoolSplits.__slots__))


@dataclass(frozen=True, slots=True, eq=False)
class PairSpace:
    """Pairs of a design that prefills and one that decodes, under one load on some devices."""

    fill: PrefillSide
    write: DecodeSide
    limits: LoadLimits
    goal: Goal
    devices: int

    @property
    def searches_load(self) -> bool:
        """True where the concurrency is searched."""
        return self.limits.concurrency is None and self.limits.rate_per_s is None

    def pair_bounds(self, pairs: PoolPairs) -> Floats:
        """Return a bound of the score of each pair."""
        limits, goal = self.limits, self.goal
        if limits.rate_per_s is not None:
            fill, write = self._needed(pairs, limits.rate_per_s)
            used = fill * self.fill.designs.devices[pairs.prefill]
            used = used + write * self.write.designs.devices[pairs.decode]
            latency = pairs.least_latency_s / ROUNDING / limits.most_faster
            bounds = goal.score(np.full(len(pairs), inf), used, latency)
            return np.where(used <= self.devices, bounds, -inf)
        rate = self.devices / pairs.devices_per_rate
        if limits.concurrency is not None:
            rate = np.minimum(rate, limits.concurrency / pairs.least_latency_s)
        latency = pairs.least_latency_s
        if limits.concurrency is not None:
            latency = np.maximum(latency, limits.concurrency / rate)
        rate = rate * ROUNDING
        devices = (
            self.devices if goal.objective == "throughput" else pairs.devices_per_rate * rate / ROUNDING**2
        )
        faster = limits.most_faster
        return goal.score(rate * faster, devices, latency / ROUNDING / faster)

    def splits(self, pairs: PoolPairs) -> PoolSplits:
        """Return the numbers of replicas that are tried of some pairs."""
        if self.limits.rate_per_s is not None and self.goal.objective != "latency":
            return self._fewest_at_rate(pairs, self.limits.rate_per_s)
        fill_sizes, write_sizes = self.fill.designs.devices, self.write.designs.devices
        rows: list[tuple[int, int, int]] = []
        for at, (first, second) in enumerate(zip(pairs.prefill, pairs.decode, strict=True)):
            rows += [
                (at, fill, write)
                for fill, write in self._counts(int(fill_sizes[first]), int(write_sizes[second]))
            ]
        found = np.array(rows, dtype=np.int64).reshape(-1, 3)
        return self._in_question(_splits(pairs.take(found[:, 0]), found[:, 1], found[:, 2]))

    def _fewest_at_rate(self, pairs: PoolPairs, rate: float) -> PoolSplits:
        """Return the fewest replicas of each pair that carry a rate within the limit on TTFT."""
        _, write = self._needed(pairs, rate)
        left = self.devices - write * self.write.designs.devices[pairs.decode]
        most = np.floor(left / self.fill.designs.devices[pairs.prefill]).astype(np.int64)
        every = _splits(pairs, most, write.astype(np.int64))
        every = every.take((most >= 1) & (write <= self.devices))
        decode = self.tabulated(every, self.caps(every))

        def carried(splits: PoolSplits) -> NDArray[np.bool_]:
            pair, requests = self.pair(splits, decode), np.full(len(splits), rate)
            ttft = pair.first_token_s(requests, requests, np.zeros(len(splits), dtype=np.bool_))
            return (requests <= SATURATION * np.asarray(pair.prompts_per_s)) & (ttft <= self.limits.ttft_s)

        return fewest_prefill(every, carried).take(carried(every))

    def _counts(self, fill: int, write: int) -> list[tuple[int, int]]:
        """Return pairs of numbers of replicas of so many devices each."""
        every = self.goal.objective == "cost"
        writes = replica_counts(self.devices, write) if every else range(1, self.devices // write + 1)
        rest = [(number, self.devices - number * write) for number in writes]
        if not every:
            return [(left // fill, number) for number, left in rest if left >= fill]
        return [(count, number) for number, left in rest for count in replica_counts(left, fill)]

    def _in_question(self, splits: PoolSplits) -> PoolSplits:
        """Return the splits that a given load leaves in question."""
        limits = self.limits
        if limits.concurrency is not None:
            return splits.take(splits.write_replicas <= limits.concurrency)
        if limits.rate_per_s is None:
            return splits
        _, write = self._needed(splits, limits.rate_per_s)
        return splits.take(splits.write_replicas >= write)

    def _needed(self, pairs: PoolPairs | PoolSplits, rate: float) -> tuple[Floats, Floats]:
        """Return the least replicas of both pools that carry a rate, as do their links."""
        busy, sent = self.fill.full_s[pairs.prefill], 1 / pairs.sent_per_s
        fill = np.ceil(rate * np.maximum(busy, sent) / SATURATION * (1 - 1e-12))
        written, received = self.write.requests_per_s[pairs.decode], SATURATION * pairs.received_per_s
        write = np.ceil(rate / np.minimum(written, received) * (1 - 1e-12))
        return np.maximum(fill, 1.0), np.maximum(write, 1.0)

    def pair(self, splits: PoolSplits, decode: DecodeTimes) -> PoolPair:
        """Return the pools of the cost model; ``decode``: seconds of the decoding designs, a row for each split."""
        return PoolPair(
            prefill=known_prefill(self.fill, splits.prefill),
            prefill_replicas=splits.fill_replicas.astype(float),
            decode=decode,
            decode_replicas=splits.write_replicas.astype(float),
            hand_over_s=splits.hand_over_s,
            waiting=self.fill.designs.family.served.waiting,
            transfers_per_s=np.minimum(
                splits.fill_replicas * splits.sent_per_s, splits.write_replicas * splits.received_per_s
            ),
        )

    def tabulated(self, splits: PoolSplits, caps: Floats) -> TabulatedDecoding:
        """Return the decoding designs with tabulated seconds, under the load that is given."""
        limits = self.limits
        concurrency = nan if limits.concurrency is None else float(limits.concurrency)
        load = limits.load(concurrency, nan if limits.rate_per_s is None else limits.rate_per_s)
        most = np.where(caps > 0, caps, np.asarray(self.write.phases.limits.sequences)[splits.decode])
        most = np.minimum(most, self.write.most[splits.decode] * UNCERTAIN)
        bound = ReplicaLimits(chunk_tokens=1.0, max_sequences=most, room_sequences=most)
        return TabulatedDecoding(self.write.table, splits.decode, load, bound)

    def caps(self, splits: PoolSplits) -> Floats:
        """Return ``max_sequences`` at a concurrency, where the limit on TPOT needs one; 0: none."""
        if self.limits.concurrency is None:
            return np.zeros(len(splits))
        cap, ranks = self.write.cap[splits.decode], self.write.designs.batches[splits.decode]
        each = -(-self.limits.concurrency // splits.write_replicas)
        rounded = -(-each // ranks) * ranks
        return np.where(self.write.slowed[splits.decode] & (cap < rounded), cap, 0.0)

    def devices_of(self, splits: PoolSplits) -> Rows:
        """Return the devices of both pools."""
        fill, write = self.fill.designs.devices, self.write.designs.devices
        used: Rows = (
            splits.fill_replicas * fill[splits.prefill] + splits.write_replicas * write[splits.decode]
        )
        return used


def _splits(pairs: PoolPairs, fill: Rows, write: Rows) -> PoolSplits:
    moved = (pairs.hand_over_s, pairs.sent_per_s, pairs.received_per_s)
    return PoolSplits(pairs.prefill, pairs.decode, *moved, fill, write)


def fewest_prefill(splits: PoolSplits, in_time: Callable[[PoolSplits], NDArray[np.bool_]]) -> PoolSplits:
    """Return the splits with the fewest prefill replicas that are ``in_time``, which all of theirs are."""
    low, high = np.zeros(len(splits), dtype=np.int64), splits.fill_replicas
    while np.any(high - low > 1):
        middle = np.maximum((low + high) // 2, 1)
        fine = in_time(replace(splits, fill_replicas=middle))
        open_ = high - low > 1
        low, high = np.where(open_ & ~fine, middle, low), np.where(open_ & fine, middle, high)
    return replace(splits, fill_replicas=high)
