"""Search of plans of two pools: one design prefills, one decodes, each with a number of replicas.

Pairs come in the order of their bounds (``pool_pairs.py``). Of a pair every number R_d of replicas that decode is tried,
with R_p on all other devices, which never makes a first token later; where cost counts, with fewer as well. Without a
load each decoding replica holds as many sequences as the limits allow: ``max_sequences``, which clients always fill, so
that k times the plan does k times the work. Numbers of sequences that decode come from a table first; what is within
its error of the best is evaluated with the operators.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.disaggregated import DecodeTimes, PoolPair, disaggregated_state
from meshwright.cost.serving.monotone_root import increasing_root
from meshwright.cost.serving.pools_state import disaggregated_pools_state
from meshwright.cost.serving.replica_load import ReplicaLimits
from meshwright.search.serving.best_first import Incumbents, best_first
from meshwright.search.serving.candidate_table import Goal, Table, table_of
from meshwright.search.serving.decode_table import LEAST, UNCERTAIN, TabulatedDecoding
from meshwright.search.serving.largest_load import SATURATION
from meshwright.search.serving.load_limits import AT_MOST, LoadLimits
from meshwright.search.serving.one_pool import ROUNDING, WITHIN
from meshwright.search.serving.pool_pairs import DecodeSide, PoolPairs, PrefillSide, known_prefill
from meshwright.search.serving.replica_counts import replica_counts

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
SPLITS_AT_ONCE = 40_000
APPROXIMATE_STEPS = 12
CLIENT_STEPS = 12
MANY = 2.0**20
"""Times over which a plan is looked at to see what its limits are in the end."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolSplits:
    """Numbers of replicas of pairs, a row each; rows of ``PrefillSide``, ``DecodeSide`` and seconds of a hand-over."""

    prefill: Rows
    decode: Rows
    hand_over_s: Floats
    fill_replicas: Rows
    write_replicas: Rows

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.prefill)

    def take(self, rows: Any) -> "PoolSplits":
        """Return some rows."""
        return PoolSplits(*(getattr(self, name)[rows] for name in PoolSplits.__slots__))


@dataclass(frozen=True, slots=True, eq=False)
class TwoPoolSearch:
    """Designs of one family that prefill and that decode, searched under one load. ``family`` is its number."""

    family: int
    fill: PrefillSide
    write: DecodeSide
    limits: LoadLimits
    goal: Goal
    devices: int

    def search(self, incumbents: Incumbents, groups: tuple[Rows, Rows]) -> tuple[list[Table], int, int]:
        """Return feasible candidates, and how many pairs there are and were evaluated."""
        pairs = PoolPairs.of(self.fill, self.write, self.limits, self.devices)
        if not len(pairs):
            return [], 0, 0
        bounds = self.pair_bounds(pairs)
        order = np.argsort(-bounds, kind="stable")
        order = order[bounds[order] > -np.inf]
        found: list[Table] = []
        begin, each = 0, self._most_splits()
        size = 64

        def group(table: Table) -> list[Any]:
            of_fill, of_write = groups[0][table["first"]], groups[1][table["second"]]
            return [
                (self.family, first, second)
                for first, second in zip(of_fill.tolist(), of_write.tolist(), strict=True)
            ]

        while begin < len(order) and bounds[order[begin]] >= incumbents.least:
            block = order[begin : begin + size]
            splits = self.splits(pairs.take(block[bounds[block] >= incumbents.least]))
            if len(splits):
                close = self.approximate(splits)
                tables, _ = best_first(
                    close,
                    lambda rows, splits=splits: self.evaluate(splits.take(rows)),  # type: ignore[misc]
                    self.goal,
                    incumbents,
                    group,
                )
                found += tables
            begin += len(block)
            size = min(2 * size, max(64, SPLITS_AT_ONCE // each))
        return found, len(pairs), begin

    def pair_bounds(self, pairs: PoolPairs) -> Floats:
        """Return a bound of the score of each pair."""
        limits, goal = self.limits, self.goal
        if limits.rate_per_s is not None:
            fill, write = self._needed(pairs.prefill, pairs.decode, limits.rate_per_s)
            devices = fill * self.fill.designs.devices[pairs.prefill]
            devices += write * self.write.designs.devices[pairs.decode]
            bounds = goal.score(np.full(len(pairs), inf), devices, pairs.least_latency_s / ROUNDING)
            return np.where(devices <= self.devices, bounds, -inf)
        rate = self.devices / pairs.devices_per_rate
        if limits.concurrency is not None:
            rate = np.minimum(rate, limits.concurrency / pairs.least_latency_s)
        latency = pairs.least_latency_s
        if limits.concurrency is not None:
            latency = np.maximum(latency, limits.concurrency / rate)
        rate = rate * ROUNDING
        devices = self.devices if goal.objective == "throughput" else pairs.devices_per_rate * rate / ROUNDING**2
        return goal.score(rate, devices, latency / ROUNDING)

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
        _, write = self._needed(pairs.prefill, pairs.decode, rate)
        left = self.devices - write * self.write.designs.devices[pairs.decode]
        most = np.floor(left / self.fill.designs.devices[pairs.prefill]).astype(np.int64)
        every = _splits(pairs, most, write.astype(np.int64))
        every = every.take((most >= 1) & (write <= self.devices))
        decode = self._tabulated(every, self._caps(every))

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
        _, write = self._needed(splits.prefill, splits.decode, limits.rate_per_s)
        return splits.take(splits.write_replicas >= write)

    def _most_splits(self) -> int:
        least = min(int(self.fill.designs.devices.min()), int(self.write.designs.devices.min()))
        return max(1, self.devices // least)

    def _needed(self, prefill: Rows, decode: Rows, rate: float) -> tuple[Floats, Floats]:
        """Return the least replicas of both pools that carry a rate."""
        fill = np.ceil(rate * self.fill.full_s[prefill] / SATURATION * (1 - 1e-12))
        write = np.ceil(rate / self.write.requests_per_s[decode] * (1 - 1e-12))
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
        )

    def approximate(self, splits: PoolSplits) -> Floats:
        """Return the scores of splits, somewhat too high; −infinity where limits are missed by more than the error."""
        limits = self.limits
        if limits.concurrency is None and limits.rate_per_s is None:
            return self._approximate_filled(splits)
        decode = self._tabulated(splits, self._caps(splits))
        steady = disaggregated_state(self.pair(splits, decode))
        held = (steady.ttft_s <= limits.ttft_s * UNCERTAIN) & (steady.tpot_s <= limits.tpot_s * UNCERTAIN)
        latency = (steady.ttft_s + limits.steps * steady.tpot_s) / UNCERTAIN
        score = self.goal.score(steady.requests_per_s * UNCERTAIN, self._devices(splits), latency)
        return np.where(held, score, -inf)

    def _tabulated(self, splits: PoolSplits, caps: Floats) -> TabulatedDecoding:
        limits = self.limits
        concurrency = nan if limits.concurrency is None else float(limits.concurrency)
        load = limits.load(concurrency, nan if limits.rate_per_s is None else limits.rate_per_s)
        most = np.where(caps > 0, caps, np.asarray(self.write.phases.limits.sequences)[splits.decode])
        most = np.minimum(most, self.write.most[splits.decode] * UNCERTAIN)
        bound = ReplicaLimits(chunk_tokens=1.0, max_sequences=most, room_sequences=most)
        return TabulatedDecoding(self.write.table, splits.decode, load, bound)

    def _caps(self, splits: PoolSplits) -> Floats:
        """Return ``max_sequences`` at a concurrency, where the limit on TPOT needs one; 0: none."""
        if self.limits.concurrency is None:
            return np.zeros(len(splits))
        cap, ranks = self.write.cap[splits.decode], self.write.designs.attention_dp[splits.decode]
        each = -(-self.limits.concurrency // splits.write_replicas)
        rounded = -(-each // ranks) * ranks
        return np.where(self.write.slowed[splits.decode] & (cap < rounded), cap, 0.0)

    def _devices(self, splits: PoolSplits) -> Rows:
        fill, write = self.fill.designs.devices, self.write.designs.devices
        used: Rows = splits.fill_replicas * fill[splits.prefill] + splits.write_replicas * write[splits.decode]
        return used

    def _approximate_filled(self, splits: PoolSplits) -> Floats:
        """Return scores where decoding replicas are filled as far as the limits allow."""
        decode = TabulatedDecoding(self.write.table, splits.decode, self.limits.load(), None)
        pair, most = self.pair(splits, decode), self.write.most[splits.decode]
        low = np.minimum(np.full(len(splits), LEAST), most)
        loose = LoadLimits(lengths=self.limits.lengths, ttft_s=self.limits.ttft_s * UNCERTAIN)
        held, least = in_time(pair, most, loose), in_time(pair, low, loose)
        high, a, b = most, np.log(low), np.log(most)
        if not held.all():
            for _ in range(APPROXIMATE_STEPS):
                middle = (a + b) / 2
                fine = in_time(pair, np.exp(middle), loose)
                a, b = np.where(fine, middle, a), np.where(fine, b, middle)
            high = np.where(held, most, np.exp(b))
        requests = np.asarray(pair.requests_per_s(high))
        latency = self.limits.steps * np.asarray(decode.decode_s(low)) / UNCERTAIN
        devices = self._devices(splits)
        if self.goal.objective == "cost":
            fewest = np.maximum(np.ceil(requests * self.fill.full_s[splits.prefill] / SATURATION / UNCERTAIN), 1)
            fewest = np.minimum(fewest, splits.fill_replicas)
            devices = devices - (splits.fill_replicas - fewest) * self.fill.designs.devices[splits.prefill]
        return np.where(least | held, self.goal.score(requests * UNCERTAIN, devices, latency), -inf)

    def evaluate(self, splits: PoolSplits, *, any_means: bool = False) -> Table:
        """Return the splits that keep the limits, with their means; ``any_means``: all that have means."""
        if self.limits.concurrency is None and self.limits.rate_per_s is None:
            return self._evaluate_filled(splits)
        concurrency = nan if self.limits.concurrency is None else float(self.limits.concurrency)
        return self._means(splits, self._caps(splits), np.full(len(splits), concurrency), any_means=any_means)

    def _evaluate_filled(self, splits: PoolSplits) -> Table:
        """Return splits at the most sequences within the limits: as a limit that clients fill, and without one."""
        write = self.write.designs.take(splits.decode)
        phases, _ = write.phases(self.limits.shape)
        pair, most = self.pair(splits, phases), self.write.most[splits.decode]
        batch = increasing_root(
            lambda sequences: over_limits(pair, sequences, self.limits), np.full_like(most, AT_MOST), most
        )
        ranks = write.attention_dp.astype(float)
        sequences = np.floor(np.minimum(batch, self.write.cap[splits.decode]) * (1 + 1e-9) / ranks) * ranks
        held = filled(pair, np.maximum(sequences, ranks), self.limits)[0]
        sequences = np.where(held, sequences, sequences - ranks)
        some = np.flatnonzero(sequences > 0)
        tables = [self._partly_filled(splits, pair, batch)]
        if len(some):
            fewer = self._trimmed(splits.take(some), sequences[some])
            phases, _ = self.write.designs.take(fewer.decode).phases(self.limits.shape)
            _, clients = filled(self.pair(fewer, phases), sequences[some], self.limits)
            tables.append(self._means(fewer, sequences[some], clients))
        return np.concatenate(tables)

    def _partly_filled(self, splits: PoolSplits, pair: PoolPair, batch: Floats) -> Table:
        """Return splits at the most clients within the limits, which leave ``max_sequences`` some room.

        k times the pools with k times the clients wait less, and so decode more at once. Where the sequences that this
        comes to, in whole ones for each rank, are within the limit on TPOT, they are ``max_sequences``; else there is
        none, and clients are so few that the limit holds for every k.
        """
        cap, most = self.write.cap[splits.decode], self.write.most[splits.decode]
        ranks = self.write.designs.attention_dp[splits.decode]
        above = np.ceil(batch * (1 - 1e-12) / ranks) * ranks
        limited = above <= cap
        requests, replicas = np.asarray(pair.requests_per_s(most)), np.asarray(pair.decode_replicas)
        many = replace(pair, prefill_replicas=pair.prefill_replicas * MANY)
        closed, clients = np.ones(len(splits), dtype=np.bool_), replicas * most
        for _ in range(CLIENT_STEPS):
            first = np.asarray(many.first_token_s(requests * MANY, clients * MANY, closed))
            clients = replicas * most + requests * first
        own = clients_of(pair, batch)
        clients = np.floor(np.where(limited, own, np.minimum(own, clients)) * (1 + 1e-12))
        rows = np.flatnonzero(clients >= 1)
        return self._means(splits.take(rows), np.where(limited, above, 0.0)[rows], clients[rows])

    def _trimmed(self, splits: PoolSplits, sequences: Floats) -> PoolSplits:
        """Return splits with the fewest prefill replicas that keep the limits with these sequences."""
        phases, _ = self.write.designs.take(splits.decode).phases(self.limits.shape)
        seconds = np.asarray(phases.decode_s(sequences))
        decode = _Constant(phases.load, phases.limits, phases.steps, seconds)
        return fewest_prefill(
            splits, lambda tried: filled(self.pair(tried, decode), sequences, self.limits)[0]
        )

    def _means(
        self, splits: PoolSplits, caps: Floats, concurrency: Floats, *, any_means: bool = False
    ) -> Table:
        limits, served = self.limits, self.fill.designs.family.served
        fill, write = self.fill.designs.take(splits.prefill), self.write.designs.take(splits.decode)
        rate = nan if limits.rate_per_s is None else limits.rate_per_s
        state = disaggregated_pools_state(
            served,
            fill.pool(splits.fill_replicas.astype(float)),
            write.pool(splits.write_replicas.astype(float), np.where(caps > 0, caps, inf)),
            limits.load(concurrency, rate),
        )
        steady = state.steady
        table = table_of(
            len(splits),
            family=self.family,
            first=splits.prefill,
            second=splits.decode,
            first_replicas=splits.fill_replicas,
            second_replicas=splits.write_replicas,
            max_sequences=caps,
            concurrency=np.nan_to_num(concurrency),
            devices=self._devices(splits),
            ttft_s=steady.ttft_s,
            tpot_s=steady.tpot_s,
            latency_s=steady.ttft_s + limits.steps * steady.tpot_s,
            requests_per_s=steady.requests_per_s,
        )
        if any_means:
            return table
        held = (table["ttft_s"] <= limits.ttft_s * WITHIN) & (table["tpot_s"] <= limits.tpot_s * WITHIN)
        return table[held]


@dataclass(frozen=True, slots=True, eq=False)
class _Constant:
    """Decoding at one number of sequences, whose seconds are known."""

    load: Any
    limits: Any
    steps: Any
    seconds: Floats

    def decode_s(self, batch: Any) -> Floats:
        """Return the seconds of an iteration."""
        return self.seconds


def _splits(pairs: PoolPairs, fill: Rows, write: Rows) -> PoolSplits:
    return PoolSplits(pairs.prefill, pairs.decode, pairs.hand_over_s, fill, write)


def fewest_prefill(
    splits: PoolSplits, in_time: Callable[[PoolSplits], NDArray[np.bool_]]
) -> PoolSplits:
    """Return the splits with the fewest prefill replicas that are ``in_time``, which all of theirs are."""
    low, high = np.zeros(len(splits), dtype=np.int64), splits.fill_replicas
    while np.any(high - low > 1):
        middle = np.maximum((low + high) // 2, 1)
        fine = in_time(replace(splits, fill_replicas=middle))
        open_ = high - low > 1
        low, high = np.where(open_ & ~fine, middle, low), np.where(open_ & fine, middle, high)
    return replace(splits, fill_replicas=high)


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
