"""A serving plan in full: pools of equal replicas, the layout of each phase, and hand-overs of caches between pools.

``plans/serving/serving_file.py`` is its form in a file, ``plans/serving/expand_pools.py`` fills in what a file leaves
out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from meshwright.plans.serving.number_formats import NumberFormats
from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.workload.serving.serving_workload import ServingWorkload

Phase = Literal["prefill", "decode"]
Does = Literal["serve", "prefill", "decode"]
Policy = Literal["continuous"]
Preempt = Literal["recompute"]
Overlap = Literal["none", "two-batch", "tile", "nano-batch"]
AllReduce = Literal["auto", "ring", "tree", "recursive-doubling"]
PHASES: Mapping[Does, tuple[Phase, ...]] = {
    "serve": ("prefill", "decode"),
    "prefill": ("prefill",),
    "decode": ("decode",),
}
"""The phases of a request that a pool computes."""
DEFAULT_CHUNK_TOKENS = 8192
DEFAULT_BLOCK_TOKENS = 16
DEFAULT_KV_FRACTION = 0.9


@dataclass(frozen=True, slots=True)
class Batching:
    """Limits of a replica's iterations and of its cache.

    ``chunk_tokens``: most prompt and decode tokens of one iteration of one attention_dp rank. ``max_sequences``: most
    running sequences of a replica, all attention_dp ranks together; None: as many as the cache has room for.
    ``block_tokens``: tokens of a cache block. ``kv_fraction``: share, for blocks of the cache, of the memory that
    weights, activations and buffers leave. ``prefix_cache``: a shared prefix is computed once. ``preempt``: how a
    sequence goes on that lost its blocks.
    """

    policy: Policy = "continuous"
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS
    max_sequences: int | None = None
    block_tokens: int = DEFAULT_BLOCK_TOKENS
    kv_fraction: float = DEFAULT_KV_FRACTION
    prefix_cache: bool = True
    preempt: Preempt = "recompute"


USUAL_BATCHING = Batching()
RELEASED_FORMATS = NumberFormats()


@dataclass(frozen=True, slots=True)
class Pool:
    """Equal replicas. ``layouts`` has the layout of each phase that the pool computes, all with equal devices."""

    name: str
    does: Does
    replicas: int
    layouts: Mapping[Phase, ReplicaLayout]
    batching: Batching = USUAL_BATCHING
    formats: NumberFormats = RELEASED_FORMATS
    overlap: Overlap = "none"
    allreduce: AllReduce = "auto"

    @property
    def has_phase_layouts(self) -> bool:
        """True if the pool's phases have unlike layouts, between which it changes."""
        return len(set(self.layouts.values())) > 1

    @property
    def devices_of_replica(self) -> int:
        """Devices of one replica; the most of its layouts."""
        return max(layout.devices for layout in self.layouts.values())

    @property
    def devices(self) -> int:
        """Devices of all replicas."""
        return self.replicas * self.devices_of_replica


@dataclass(frozen=True, slots=True)
class HandOver:
    """The caches of sequences that move from one pool to another after prefill."""

    source: str
    target: str
    carry: Literal["kv"] = "kv"


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """A serving plan in full. ``pools`` by name, in the order of the file."""

    model: str
    cluster: str
    stack: str
    workload: ServingWorkload
    pools: Mapping[str, Pool]
    edges: tuple[HandOver, ...] = ()

    @property
    def devices(self) -> int:
        """Devices of all pools."""
        return sum(pool.devices for pool in self.pools.values())
