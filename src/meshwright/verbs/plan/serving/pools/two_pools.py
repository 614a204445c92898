"""Search of plans of two pools: one design prefills, one decodes, each with a number of replicas.

Pairs come in the order of their bounds (``pool_pairs.py``), with their numbers of replicas (``pool_split.py``). Without
a load each decoding replica holds as many sequences as the limits allow: ``max_sequences``, which clients always fill,
so that k times the plan does k times the work. Seconds of decoding come from a table first; the splits within its error
of the best are evaluated with the operators.
"""

from dataclasses import dataclass
from math import inf, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.disaggregated import PoolPair, disaggregated_state
from meshwright.cost.serving.monotone_root import increasing_root
from meshwright.cost.serving.pools_state import disaggregated_pools_state
from meshwright.search.serving.best_first import Incumbents, best_first
from meshwright.search.serving.candidate_table import Table, table_of
from meshwright.verbs.plan.serving.pools.filled_pools import (
    KnownDecoding,
    clients_many_times_over,
    clients_of,
    filled,
    in_time,
    over_limits,
)
from meshwright.verbs.plan.serving.pools.iteration_table import LEAST, UNCERTAIN, TabulatedDecoding
from meshwright.verbs.plan.serving.pools.load_capacity import SATURATION
from meshwright.verbs.plan.serving.pools.load_limits import AT_MOST, LoadLimits
from meshwright.verbs.plan.serving.pools.pool_pairs import PoolPairs
from meshwright.verbs.plan.serving.pools.pool_split import PairSpace, PoolSplits, fewest_prefill

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
SPLITS_AT_ONCE = 40_000
APPROXIMATE_STEPS = 12


@dataclass(frozen=True, slots=True, eq=False)
class TwoPoolSearch:
    """The search of pairs of pools of one family, whose number it has."""

    family: int
    space: PairSpace

    def search(self, incumbents: Incumbents, groups: tuple[Rows, Rows]) -> tuple[list[Table], int, int]:
        """Return feasible candidates, and how many pairs there are and were evaluated."""
        pairs = PoolPairs.of(self.space.fill, self.space.write, self.space.limits, self.space.devices)
        if not len(pairs):
            return [], 0, 0
        bounds = self.space.pair_bounds(pairs)
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
            splits = self.space.splits(pairs.take(block[bounds[block] >= incumbents.least]))
            if len(splits):
                close = self.approximate(splits)
                tables, _ = best_first(
                    close,
                    lambda rows, splits=splits: self.evaluate(splits.take(rows)),  # type: ignore[misc]
                    self.space.goal,
                    incumbents,
                    group,
                )
                found += tables
            begin += len(block)
            size = min(2 * size, max(64, SPLITS_AT_ONCE // each))
        return found, len(pairs), begin

    def _most_splits(self) -> int:
        least = min(int(self.space.fill.designs.devices.min()), int(self.space.write.designs.devices.min()))
        return max(1, self.space.devices // least)

    def approximate(self, splits: PoolSplits) -> Floats:
        """Return the scores of splits, somewhat too high; −infinity where limits are missed by more than the error."""
        limits = self.space.limits
        if self.space.searches_load:
            return self._approximate_filled(splits)
        decode = self.space.tabulated(splits, self.space.caps(splits))
        steady = disaggregated_state(self.space.pair(splits, decode))
        held = (steady.ttft_s <= limits.ttft_s * UNCERTAIN) & (steady.tpot_s <= limits.tpot_s * UNCERTAIN)
        faster = limits.most_faster
        latency = (steady.ttft_s + limits.steps * steady.tpot_s) / UNCERTAIN / faster
        score = self.space.goal.score(
            steady.requests_per_s * UNCERTAIN * faster, self.space.devices_of(splits), latency
        )
        return np.where(held, score, -inf)

    def _approximate_filled(self, splits: PoolSplits) -> Floats:
        """Return scores where decoding replicas are filled as far as the limits allow."""
        decode = TabulatedDecoding(self.space.write.table, splits.decode, self.space.limits.load(), None)
        pair, most = self.space.pair(splits, decode), self.space.write.most[splits.decode]
        low = np.minimum(np.full(len(splits), LEAST), most)
        loose = LoadLimits(lengths=self.space.limits.lengths, ttft_s=self.space.limits.ttft_s * UNCERTAIN)
        held, least = in_time(pair, most, loose), in_time(pair, low, loose)
        high, a, b = most, np.log(low), np.log(most)
        if not held.all():
            for _ in range(APPROXIMATE_STEPS):
                middle = (a + b) / 2
                fine = in_time(pair, np.exp(middle), loose)
                a, b = np.where(fine, middle, a), np.where(fine, b, middle)
            high = np.where(held, most, np.exp(b))
        requests = np.asarray(pair.requests_per_s(high))
        faster = UNCERTAIN * self.space.limits.most_faster
        latency = self.space.limits.steps * np.asarray(decode.decode_s(low)) / faster
        devices = self.space.devices_of(splits)
        if self.space.goal.objective == "cost":
            fewest = np.maximum(
                np.ceil(requests * self.space.fill.full_s[splits.prefill] / SATURATION / UNCERTAIN), 1
            )
            fewest = np.minimum(fewest, splits.fill_replicas)
            devices = (
                devices - (splits.fill_replicas - fewest) * self.space.fill.designs.devices[splits.prefill]
            )
        return np.where(least | held, self.space.goal.score(requests * faster, devices, latency), -inf)

    def evaluate(self, splits: PoolSplits, *, any_means: bool = False) -> Table:
        """Return the splits that keep the limits, with their means; ``any_means``: all that have means."""
        if self.space.searches_load:
            return self._evaluate_filled(splits)
        concurrency = nan if self.space.limits.concurrency is None else float(self.space.limits.concurrency)
        return self._means(
            splits, self.space.caps(splits), np.full(len(splits), concurrency), any_means=any_means
        )

    def _evaluate_filled(self, splits: PoolSplits) -> Table:
        """Return splits at the most sequences within the limits: as a limit that clients fill, and without one."""
        write = self.space.write.designs.take(splits.decode)
        phases, _ = write.phases(self.space.limits.shape)
        pair, most = self.space.pair(splits, phases), self.space.write.most[splits.decode]
        batch = increasing_root(
            lambda sequences: over_limits(pair, sequences, self.space.limits),
            np.full_like(most, AT_MOST),
            most,
        )
        ranks = write.batches.astype(float)
        sequences = (
            np.floor(np.minimum(batch, self.space.write.cap[splits.decode]) * (1 + 1e-9) / ranks) * ranks
        )
        held = filled(pair, np.maximum(sequences, ranks), self.space.limits)[0]
        sequences = np.where(held, sequences, sequences - ranks)
        some = np.flatnonzero(sequences > 0)
        tables = []
        if self.space.limits.shorter_waits_gain:
            tables.append(self._partly_filled(splits, pair, batch))
        if len(some):
            fewer = self._trimmed(splits.take(some), sequences[some])
            phases, _ = self.space.write.designs.take(fewer.decode).phases(self.space.limits.shape)
            _, clients = filled(self.space.pair(fewer, phases), sequences[some], self.space.limits)
            tables.append(self._means(fewer, sequences[some], clients))
        return np.concatenate(tables) if tables else table_of(0)

    def _partly_filled(self, splits: PoolSplits, pair: PoolPair, batch: Floats) -> Table:
        """Return splits at the most clients within the limits, which leave ``max_sequences`` some room.

        k times the pools with k times the clients wait less, and so decode more at once. Where the sequences that this
        comes to, in whole ones for each rank, are within the limit on TPOT, they are ``max_sequences``; else there is
        none, and clients are so few that the limit holds for every k.
        """
        cap, most = self.space.write.cap[splits.decode], self.space.write.most[splits.decode]
        ranks = self.space.write.designs.batches[splits.decode]
        above = np.ceil(batch * (1 - 1e-12) / ranks) * ranks
        limited = above <= cap
        own = clients_of(pair, batch)
        clients = np.floor(
            np.where(limited, own, np.minimum(own, clients_many_times_over(pair, most))) * (1 + 1e-12)
        )
        rows = np.flatnonzero(clients >= 1)
        return self._means(splits.take(rows), np.where(limited, above, 0.0)[rows], clients[rows])

    def _trimmed(self, splits: PoolSplits, sequences: Floats) -> PoolSplits:
        """Return splits with the fewest prefill replicas that keep the limits with these sequences."""
        phases, _ = self.space.write.designs.take(splits.decode).phases(self.space.limits.shape)
        seconds = np.asarray(phases.decode_s(sequences))
        decode = KnownDecoding(phases.load, phases.limits, phases.steps, seconds)
        return fewest_prefill(
            splits, lambda tried: filled(self.space.pair(tried, decode), sequences, self.space.limits)[0]
        )

    def _means(
        self, splits: PoolSplits, caps: Floats, concurrency: Floats, *, any_means: bool = False
    ) -> Table:
        limits, served = self.space.limits, self.space.fill.designs.family.served
        fill, write = (
            self.space.fill.designs.take(splits.prefill),
            self.space.write.designs.take(splits.decode),
        )
        rate = nan if limits.rate_per_s is None else limits.rate_per_s
        state = disaggregated_pools_state(
            served,
            fill.pool(splits.fill_replicas.astype(float)),
            write.pool(splits.write_replicas.astype(float), np.where(caps > 0, caps, inf)),
            limits.load(concurrency, rate),
        )
        means = limits.means(state.steady, concurrency)
        table = table_of(
            len(splits),
            family=self.family,
            first=splits.prefill,
            second=splits.decode,
            first_replicas=splits.fill_replicas,
            second_replicas=splits.write_replicas,
            max_sequences=caps,
            concurrency=np.nan_to_num(concurrency),
            devices=self.space.devices_of(splits),
            ttft_s=means.ttft_s,
            tpot_s=means.tpot_s,
            latency_s=means.ttft_s + limits.steps * means.tpot_s,
            requests_per_s=means.requests_per_s,
        )
        return table if any_means else table[limits.held(state.steady)]
