"""Settings of a pool's servers in an engine's terms: sequences of a rank, bytes of each part of a device's memory.

A plan gives the cache a share of what weights, activations and buffers leave. vLLM and SGLang take shares of the whole
device: with M its memory, W weights, A activations, B buffers and C = kv_fraction · (M − W − A − B) of the cache,

    --gpu-memory-utilization = (W + A + B + C) / M        --mem-fraction-static = (W + C) / M
"""

from dataclasses import dataclass, replace
from math import floor
from typing import Literal

from meshwright.cost.serving.estimate_serving import plan_load, pool_arrays, served_model
from meshwright.cost.serving.kv_capacity import kv_capacity
from meshwright.frameworks.serving.engine_facts import CHECKPOINT, EngineFacts, engine_facts
from meshwright.frameworks.serving.replica_placement import ReplicaPlace, place_replicas
from meshwright.model.architecture import Architecture
from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.plans.serving.resolve_serving import ResolvedServing
from meshwright.plans.serving.serving_plan import Pool, ServingPlan
from meshwright.program.serving.storage_formats import StorageFormats

FIRST_PORT = 8000
PORTS_OF_POOL = 100
SHARE_DIGITS = 4
ROUND_DOWN = 10**SHARE_DIGITS
Role = Literal["serve", "prefill", "decode"]


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes of the fullest device of a replica."""

    device_bytes: float
    weights_bytes: float
    activation_bytes: float
    buffer_bytes: float
    cache_bytes: float

    @property
    def used_share(self) -> float:
        """Share of the device that weights, activations, buffers and cache take, rounded down."""
        rest = self.activation_bytes + self.buffer_bytes
        return self._share(self.weights_bytes + rest + self.cache_bytes)

    @property
    def static_share(self) -> float:
        """Share of the device that weights and cache take, rounded down."""
        return self._share(self.weights_bytes + self.cache_bytes)

    def _share(self, taken: float) -> float:
        return floor(taken / self.device_bytes * ROUND_DOWN) / ROUND_DOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """A pool, and what its commands say.

    ``role``: that in the hand-over of caches, ``serve`` where there is none. ``sequences`` of a rank of attention_dp.
    ``places`` of the replicas on nodes of ``node_devices``; ``port`` of the first replica.
    """

    pool: Pool
    layout: ReplicaLayout
    has_experts: bool
    role: Role
    sequences: int
    memory: DeviceMemory
    places: tuple[ReplicaPlace, ...]
    node_devices: int
    port: int

    @property
    def nodes(self) -> int:
        """Nodes of a replica."""
        return self.places[0].nodes

    @property
    def number(self) -> int:
        """Place of the pool in the plan, from 0."""
        return (self.port - FIRST_PORT) // PORTS_OF_POOL


def settings_of_pools(target: str, resolved: ResolvedServing) -> list[PoolSettings]:
    """Return the settings of each pool of a plan that ``target`` runs."""
    places = place_replicas(resolved.plan, resolved.cluster.pool)
    has_experts = resolved.model.architecture.moe is not None
    return [
        PoolSettings(
            pool=pool,
            layout=layout_of(pool),
            has_experts=has_experts,
            role=role_of(pool, resolved.plan),
            sequences=sequences_of_rank(target, pool, resolved),
            memory=device_memory(target, pool, resolved),
            places=places.replicas[name],
            node_devices=places.node_devices,
            port=FIRST_PORT + PORTS_OF_POOL * number,
        )
        for number, (name, pool) in enumerate(resolved.plan.pools.items())
    ]


def layout_of(pool: Pool) -> ReplicaLayout:
    """Return the only layout of a pool."""
    return next(iter(pool.layouts.values()))


def role_of(pool: Pool, plan: ServingPlan) -> Role:
    """Return what a pool does in a hand-over of caches; ``serve`` where it has no edge."""
    ends = {end for edge in plan.edges for end in (edge.source, edge.target)}
    return pool.does if pool.name in ends else "serve"


def device_memory(target: str, pool: Pool, resolved: ResolvedServing) -> DeviceMemory:
    """Return the bytes of the fullest device; those of the cache are negative where the weights do not fit."""
    served = served_model(_on(target, resolved))
    found = kv_capacity(served, pool_arrays(pool, resolved), plan_load(resolved))
    return DeviceMemory(
        served.memory_bytes,
        float(found.weights_bytes),
        float(found.activation_bytes),
        found.buffer_bytes,
        float(found.room_bytes),
    )


def sequences_of_rank(target: str, pool: Pool, resolved: ResolvedServing) -> int:
    """Return the most running sequences of a rank of attention_dp, rounded down; at least one in each batch.

    An engine that counts the batch of each stage has as many in all of them.

    A plan without a number means as many as the cache has room for: requests of mean lengths, and no more than an
    iteration has tokens.
    """
    given, layout = pool.batching.max_sequences, layout_of(pool)
    batches = layout.pp if engine_facts(target).allows("batch_of_each_stage") else 1
    if given is not None:
        return max(given // layout.attention_dp // batches, 1) * batches
    found = kv_capacity(served_model(_on(target, resolved)), pool_arrays(pool, resolved), plan_load(resolved))
    room = min(int(found.sequences) // layout.attention_dp, pool.batching.chunk_tokens)
    return max(room // batches, 1) * batches


def _on(target: str, resolved: ResolvedServing) -> ResolvedServing:
    """Return the plan with the engine of an export as its stack."""
    return replace(resolved, plan=replace(resolved.plan, stack=target))


def weights_option(pool: Pool, arch: Architecture, facts: EngineFacts) -> tuple[str, str] | None:
    """Return the engine's option and value for a pool's weights; None where the checkpoint says their format."""
    format_name = asked_weights(pool, arch)
    word = None if format_name is None else facts.word("quantise.weights", format_name)
    if word is None or word == CHECKPOINT or arch.released_weights not in ("bf16", "fp16"):
        return None
    name, value = word.split()
    return name, value


def checkpoint_format(pool: Pool, arch: Architecture, facts: EngineFacts) -> str | None:
    """Return the format that the checkpoint must have, where it is not the released one."""
    format_name = asked_weights(pool, arch)
    return format_name if format_name and weights_option(pool, arch, facts) is None else None


def asked_weights(pool: Pool, arch: Architecture) -> str | None:
    """Return the format of weights that a pool asks for, None where the released weights have it."""
    found = StorageFormats.of_pool(pool.formats, arch).weights
    return None if found == arch.released_weights else found
