"""Search of plans of one pool that serves: replicas of one design, their number, and the concurrency or a limit.

Without a load every design is given as many clients as keep the limits, with the numbers of replicas that fill the
cluster. At a concurrency the numbers of ``search/serving/replica_counts.py`` are alternatives; where TPOT would be too
long ``max_sequences`` holds it, and requests wait. At a rate a design needs ⌈rate/largest rate of a replica⌉ replicas.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.phase_times import PhaseTimes
from meshwright.cost.serving.pools_state import serving_state
from meshwright.search.serving.best_first import Incumbents, best_first
from meshwright.search.serving.candidate_table import Goal, Table, table_of
from meshwright.search.serving.replica_counts import divisors, replica_counts
from meshwright.verbs.plan.serving.pools.load_capacity import (
    LargestLoad,
    largest_load,
    most_requests,
    most_sequences,
)
from meshwright.verbs.plan.serving.pools.load_limits import LoadLimits
from meshwright.verbs.plan.serving.pools.pool_split import ROUNDING
from meshwright.verbs.plan.serving.pools.replica_designs import ReplicaDesigns

Floats = NDArray[np.float64]
TTFT_MISSED = "the first token takes longer than max_ttft_ms, even of one request"
TPOT_MISSED = "a token takes longer than max_tpot_ms, even of one sequence"
BOTH_MISSED = "no load keeps max_ttft_ms and max_tpot_ms at once"
LOAD_MISSED = "carrying the rate within the limits needs more devices than the cluster has"


@dataclass(frozen=True, slots=True, eq=False)
class Alternatives:
    """Numbers of replicas of designs, a row each, with the load of all replicas. NaN: not given; 0: no limit."""

    design: NDArray[np.int64]
    replicas: NDArray[np.int64]
    concurrency: Floats
    max_sequences: Floats
    most_requests_per_s: Floats
    least_latency_s: Floats

    def __len__(self) -> int:
        """Return the number of alternatives."""
        return len(self.design)

    def take(self, rows: NDArray[np.int64]) -> "Alternatives":
        """Return some rows."""
        return Alternatives(*(getattr(self, name)[rows] for name in Alternatives.__slots__))


@dataclass(frozen=True, slots=True, eq=False)
class OnePoolSearch:
    """Designs of one family with their largest loads, searched under one load. ``family`` is its number."""

    family: int
    designs: ReplicaDesigns
    limits: LoadLimits
    goal: Goal
    devices: int

    def search(
        self, incumbents: Incumbents, layouts: NDArray[np.int64]
    ) -> tuple[list[Table], int, int, Counter[str]]:
        """Return feasible candidates, how many alternatives there are and were evaluated, and refused designs."""
        every, refused = self._prepared()
        if every is None or not len(every):
            return [], 0, 0, refused
        devices = every.replicas * self.designs.devices[every.design]
        faster = self.limits.most_faster
        bounds = self.goal.score(
            every.most_requests_per_s * ROUNDING * faster, devices, every.least_latency_s / faster
        )

        def group(table: Table) -> list[Any]:
            return [(self.family, layout, -1) for layout in layouts[table["first"]].tolist()]

        found, evaluated = best_first(
            bounds, lambda rows: self.evaluate(every.take(rows)), self.goal, incumbents, group
        )
        return found, len(every), evaluated, refused

    def alternatives(self) -> Alternatives | None:
        """Return every number of replicas of every design; None without designs."""
        return self._prepared()[0]

    def _prepared(self) -> tuple[Alternatives | None, Counter[str]]:
        """Return the alternatives, and the designs that no load suits by reason."""
        if not len(self.designs):
            return None, Counter()
        phases, _ = self.designs.phases(self.limits.shape)
        largest = largest_load(phases, self.designs.family.served.waiting, self.limits)
        return self._alternatives(phases, largest), self._refused(largest)

    def evaluate(self, alternatives: Alternatives, *, any_means: bool = False) -> Table:
        """Return the alternatives that keep the limits, with their means; ``any_means``: all that have means."""
        limits, designs = self.limits, self.designs.take(alternatives.design)
        rate = nan if limits.rate_per_s is None else limits.rate_per_s
        cap = np.where(alternatives.max_sequences > 0, alternatives.max_sequences, inf)
        pool = designs.pool(alternatives.replicas.astype(float), cap)
        state = serving_state(designs.family.served, pool, limits.load(alternatives.concurrency, rate))
        means = limits.means(state.steady, alternatives.concurrency)
        table = table_of(
            len(alternatives),
            family=self.family,
            first=alternatives.design,
            first_replicas=alternatives.replicas,
            max_sequences=alternatives.max_sequences,
            concurrency=np.nan_to_num(alternatives.concurrency),
            devices=alternatives.replicas * designs.devices,
            ttft_s=means.ttft_s,
            tpot_s=means.tpot_s,
            latency_s=means.ttft_s + limits.steps * means.tpot_s,
            requests_per_s=means.requests_per_s,
        )
        return table if any_means else table[limits.held(state.steady)]

    def _alternatives(self, phases: PhaseTimes, largest: LargestLoad) -> Alternatives:
        limits = self.limits
        if limits.concurrency is not None:
            return self._at_concurrency(phases, limits.concurrency, largest)
        if limits.rate_per_s is not None:
            return self._at_rate(limits.rate_per_s, largest)
        return self._at_largest(largest)

    def _expanded(
        self, wanted: NDArray[np.bool_], counts: Callable[[int, int], tuple[int, ...]]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return a row for each wanted design and number of replicas."""
        sizes = self.designs.devices
        rows = [(row, count) for row in np.flatnonzero(wanted) for count in counts(int(row), int(sizes[row]))]
        pairs = np.array(rows, dtype=np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def _at_largest(self, largest: LargestLoad) -> Alternatives:
        design, replicas = self._expanded(largest.carries, lambda row, size: _filling(self.devices, size))
        design, replicas, clients = self._whole_clients(design, replicas, largest)
        some = clients >= 1
        design, replicas, clients = design[some], replicas[some], clients[some]
        return Alternatives(
            design,
            replicas,
            clients,
            np.zeros(len(design)),
            replicas * largest.requests_per_s[design],
            (largest.least_ttft_s + self.limits.steps * largest.least_tpot_s)[design],
        )

    def _whole_clients(
        self, design: NDArray[np.int64], replicas: NDArray[np.int64], largest: LargestLoad
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
        """Return whole numbers of clients next to the largest load, of all replicas and of each equal part of them.

        So k times an alternative is one of k times the devices.
        """
        found = []
        for parts in divisors(self.devices):
            rows = np.flatnonzero(replicas % parts == 0)
            each = replicas[rows] // parts * largest.clients[design[rows]]
            for whole in (np.floor(each * (1 + 1e-12)), np.ceil(each * (1 - 1e-12))):
                found.append(np.stack([design[rows], replicas[rows], parts * whole], axis=1))
        table = np.unique(np.concatenate(found), axis=0)
        return table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2]

    def _at_concurrency(self, phases: PhaseTimes, concurrency: int, largest: LargestLoad) -> Alternatives:
        most = most_sequences(phases, self.limits.tpot_s, mixed=self.designs.mixed)
        ranks = self.designs.batches
        cap = np.floor(most * (1 + 1e-12) / ranks) * ranks
        least = largest.least_ttft_s + self.limits.steps * largest.least_tpot_s
        open_ = (most > 0) & (largest.least_tpot_s <= self.limits.tpot_s)
        design, replicas = self._expanded(
            open_,
            lambda row, size: tuple(n for n in replica_counts(self.devices, size) if n <= concurrency),
        )
        each = -(-concurrency // replicas)
        rounded = -(-each // ranks[design]) * ranks[design]
        slowed = most < np.asarray(phases.limits.sequences) * (1 - 1e-9)
        limited = slowed[design] & (cap[design] < rounded) & (cap[design] > 0)
        requests = np.minimum(
            concurrency / least[design], replicas * most_requests(phases, self.limits, most)[design]
        )
        return Alternatives(
            design,
            replicas,
            np.full(len(design), float(concurrency)),
            np.where(limited, cap[design], 0.0),
            requests,
            concurrency / (requests * ROUNDING),
        )

    def _at_rate(self, rate: float, largest: LargestLoad) -> Alternatives:
        needed = np.ceil(rate / np.maximum(largest.requests_per_s, 1e-300) * (1 - 1e-12))

        def counts(row: int, size: int) -> tuple[int, ...]:
            least = int(needed[row])
            more = (n for n in replica_counts(self.devices, size) if n > least)
            return (least, *more) if least * size <= self.devices else ()

        design, replicas = self._expanded(largest.carries & (needed <= self.devices), counts)
        return Alternatives(
            design,
            replicas,
            np.full(len(design), nan),
            np.zeros(len(design)),
            np.full(len(design), rate),
            (largest.least_ttft_s + self.limits.steps * largest.least_tpot_s)[design] / ROUNDING,
        )

    def _refused(self, largest: LargestLoad) -> Counter[str]:
        limits = self.limits
        slow = largest.least_tpot_s > limits.tpot_s
        late = ~slow & (largest.least_ttft_s > limits.ttft_s) & ~largest.carries
        both = ~slow & ~late & ~largest.carries & (limits.concurrency is None)
        needed = np.ceil((limits.rate_per_s or 0.0) / np.maximum(largest.requests_per_s, 1e-300))
        small = largest.carries & (needed * self.designs.devices > self.devices)
        return +Counter(
            {
                TPOT_MISSED: int(slow.sum()),
                TTFT_MISSED: int(late.sum()),
                BOTH_MISSED: int(both.sum()),
                LOAD_MISSED: int(small.sum()) if limits.rate_per_s else 0,
            }
        )


def _filling(devices: int, size: int) -> tuple[int, ...]:
    """Return the numbers of replicas that fill every equal part of the devices, which tile into each other."""
    return tuple(sorted({parts * (devices // parts // size) for parts in divisors(devices)} - {0}))
