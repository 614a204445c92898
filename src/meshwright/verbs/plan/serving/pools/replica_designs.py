"""Designs of a replica: every legal layout with every chunk, in one pair of number formats under one engine.

Designs without room for the weights or for one sequence are refused, and counted.
"""

from collections import Counter
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.kv_capacity import KvCapacity
from meshwright.cost.serving.phase_times import PhaseTimes
from meshwright.cost.serving.pools_state import pool_phases
from meshwright.cost.serving.replica_load import ReplicaLoad
from meshwright.cost.serving.replica_pools import PoolArrays, ServedModel
from meshwright.plans.serving.number_formats import NumberFormats
from meshwright.plans.serving.serving_plan import AllReduce, Overlap
from meshwright.program.local_shape import Number
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats
from meshwright.search.serving.replica_layouts import NAMES, ReplicaLayouts

CHUNKS = (2048, 4096, 8192, 16384)
"""Tokens of an iteration that are tried."""
NO_WEIGHTS = "weights, activations and buffers exceed the memory of a device"
NO_SEQUENCE = "no room for the cache of one sequence beside the weights"

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Common facts of designs: an engine by its name in a plan, the model on it, formats, forms of collectives."""

    stack: str
    served: ServedModel
    formats: NumberFormats
    overlap: Overlap = "none"
    allreduce: AllReduce = "auto"

    @property
    def storage(self) -> StorageFormats:
        """Return the formats of every operator's weights and of the cache."""
        return StorageFormats.of_pool(self.formats, self.served.model.architecture)


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaDesigns:
    """Designs that fit, a row each: degrees and chunks. ``mixed``: prompts run among sequences that decode."""

    family: Family
    degrees: NDArray[np.int64]
    chunk_tokens: Rows
    mixed: bool

    @property
    def without_pipelines(self) -> "ReplicaDesigns":
        """The designs of one stage."""
        one = self.degrees[:, NAMES.index("pp")] == 1
        return ReplicaDesigns(self.family, self.degrees[one], self.chunk_tokens[one], mixed=self.mixed)

    def __len__(self) -> int:
        """Return the number of designs."""
        return len(self.degrees)

    @property
    def devices(self) -> Rows:
        """Devices of a replica."""
        found: Rows = self.degrees[:, :3].prod(axis=1)
        return found

    @property
    def attention_dp(self) -> Rows:
        """Ranks of a replica that have sequences of their own."""
        return self.degrees[:, NAMES.index("attention_dp")]

    @property
    def batches(self) -> Rows:
        """Batches of a replica that run at once: one for each rank of attention_dp and stage."""
        return self.attention_dp * self.degrees[:, NAMES.index("pp")]

    @property
    def cache_links(self) -> Rows:
        """Ranks that hold a part of one sequence's cache."""
        return self.degrees[:, NAMES.index("tp")] * self.degrees[:, NAMES.index("pp")]

    def take(self, rows: NDArray[Any]) -> "ReplicaDesigns":
        """Return the designs at some rows."""
        return replace(self, degrees=self.degrees[rows], chunk_tokens=self.chunk_tokens[rows])

    def pool(self, replicas: Number = 1.0, max_sequences: Number = inf) -> PoolArrays:
        """Return pools of these replicas."""
        columns = dict(zip(NAMES, self.degrees.T.astype(float), strict=True))
        return PoolArrays(
            degrees=ReplicaDegrees(cp=1.0, **columns),
            formats=self.family.storage,
            chunk_tokens=self.chunk_tokens.astype(float),
            max_sequences=max_sequences,
            kv_fraction=self.family.served.engine.kv_fraction,
            replicas=replicas,
            overlap=self.family.overlap,
            allreduce=self.family.allreduce,
        )

    def phases(self, load: ReplicaLoad, max_sequences: Number = inf) -> tuple[PhaseTimes, KvCapacity]:
        """Return the seconds of phases and the room of one replica of each design."""
        pool = self.pool(max_sequences=max_sequences)
        return pool_phases(self.family.served, pool, load, mixed=self.mixed)


def replica_designs(
    family: Family, layouts: ReplicaLayouts, chunks: tuple[int, ...], load: ReplicaLoad, *, mixed: bool
) -> tuple[ReplicaDesigns, Counter[str]]:
    """Return the designs that fit, and the number of the others by reason."""
    every = ReplicaDesigns(
        family,
        np.repeat(layouts.table, len(chunks), axis=0),
        np.tile(np.array(chunks, dtype=np.int64), len(layouts)),
        mixed,
    )
    if not len(every):
        return every, Counter()
    _, capacity = every.phases(load)
    empty = np.asarray(capacity.room_bytes) <= 0
    fits = capacity.fits & ~empty
    refused = Counter({NO_WEIGHTS: int(empty.sum()), NO_SEQUENCE: int((~fits & ~empty).sum())})
    return every.take(np.flatnonzero(fits)), +refused


def distinct_layouts(designs: ReplicaDesigns) -> Rows:
    """Return a number for each design, equal where the degrees are."""
    return np.unique(designs.degrees, axis=0, return_inverse=True)[1].reshape(-1)
