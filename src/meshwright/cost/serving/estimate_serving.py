"""Estimate the steady state of a serving plan under its load; refuse by name what has no estimate yet."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, nan

from meshwright.cost.serving.hardware_times import serving_times_for
from meshwright.cost.serving.host_cache import buffer_sequences
from meshwright.cost.serving.pools_state import (
    PoolsState,
    disaggregated_pools_state,
    phased_pool_state,
    serving_state,
)
from meshwright.cost.serving.replica_load import ReplicaLoad
from meshwright.cost.serving.replica_pools import PoolArrays, ServedModel
from meshwright.errors import Problem, UnsupportedError
from meshwright.plans.serving.resolve_serving import ResolvedServing
from meshwright.plans.serving.serving_plan import Phase, Pool
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats
from meshwright.stack.serving.serving_stack import load_serving_stack
from meshwright.units import GIB

LATER = "is not predicted yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingEstimate:
    """A plan's state, with what it was computed of. Arrays have no axes."""

    served: ServedModel
    pools: tuple[tuple[Pool, PoolArrays], ...]
    load: ReplicaLoad
    state: PoolsState


def served_model(resolved: ResolvedServing) -> ServedModel:
    """Return the model on the devices of a plan's cluster, which are all alike, under its engine."""
    pool = resolved.cluster.pool
    return ServedModel(
        model=resolved.model,
        times=serving_times_for(pool),
        memory_bytes=pool.device.memory_bytes,
        engine=load_serving_stack(resolved.plan.stack),
        host_memory_bytes=pool.node.host_memory_bytes,
        devices_of_host=pool.devices_of_host,
    )


def estimate_serving(resolved: ResolvedServing) -> ServingEstimate:
    """Estimate a legal plan. Raises UnsupportedError with everything in it that is not predicted yet."""
    problems = [*unpredicted(resolved)]
    if problems:
        raise UnsupportedError(problems)
    served, plan = served_model(resolved), resolved.plan
    by_task = {pool.does: pool for pool in plan.pools.values()}
    arrays = {does: pool_arrays(pool, resolved) for does, pool in by_task.items()}
    load = plan_load(resolved)
    if "serve" in by_task and by_task["serve"].has_phase_layouts:
        prefill = pool_arrays(by_task["serve"], resolved, "prefill")
        state = phased_pool_state(served, prefill, arrays["serve"], load)
    elif "serve" in by_task:
        state = serving_state(served, arrays["serve"], load)
    else:
        state = disaggregated_pools_state(served, arrays["prefill"], arrays["decode"], load)
    pools = tuple((pool, arrays[pool.does]) for pool in plan.pools.values())
    return ServingEstimate(served=served, pools=pools, load=load, state=state)


def pool_arrays(pool: Pool, resolved: ResolvedServing, phase: Phase | None = None) -> PoolArrays:
    """Return the replicas of a pool as numbers, in a phase that it computes; by default the last one."""
    layout = pool.layouts[phase or [*pool.layouts][-1]]
    limit = pool.batching.max_sequences
    return PoolArrays(
        degrees=ReplicaDegrees.of_layout(layout),
        formats=StorageFormats.of_pool(pool.formats, resolved.model.architecture),
        replicas=float(pool.replicas),
        chunk_tokens=float(pool.batching.chunk_tokens),
        max_sequences=inf if limit is None else float(limit),
        kv_fraction=pool.batching.kv_fraction,
        block_tokens=pool.batching.block_tokens,
        overlap=pool.overlap,
        allreduce=pool.allreduce,
    )


def plan_load(resolved: ResolvedServing) -> ReplicaLoad:
    """Return the load of a plan on all of its replicas; without one, as many requests as have room."""
    workload = resolved.plan.workload
    clients, rate = workload.concurrency, workload.rate_per_s
    return ReplicaLoad.of_lengths(
        workload.lengths,
        nan if clients is None else float(clients),
        (inf if clients is None else nan) if rate is None else rate,
        prefix_cache=all(pool.batching.prefix_cache for pool in resolved.plan.pools.values()),
    )


def unpredicted(resolved: ResolvedServing) -> Iterator[Problem]:
    """Yield what a legal plan says and no prediction knows yet."""
    plan, arch = resolved.plan, resolved.model.architecture
    if len(resolved.cluster.pools) > 1:
        rule = f"a cluster of unlike devices {LATER}"
        yield Problem("cluster", plan.cluster, rule, "a cluster of one kind of device")
    if arch.encoder is not None:
        yield Problem("model", plan.model, f"serving a model with an encoder {LATER}", "a decoder alone")
    tasks = [pool.does for pool in plan.pools.values()]
    if len(tasks) > 1 and sorted(tasks) != ["decode", "prefill"]:
        rule = f"more than one pool of a kind {LATER}"
        yield Problem(
            "pools", ", ".join(tasks), rule, "one pool that serves, or one of prefill and one of decode"
        )
    for pool in plan.pools.values():
        yield from _of_pool(pool, has_states=arch.state_space is not None or arch.linear is not None)
        if pool.has_phase_layouts:
            yield from _of_phases(pool, resolved)


def _of_pool(pool: Pool, *, has_states: bool) -> Iterator[Problem]:
    if has_states and any(layout.cp > 1 for layout in pool.layouts.values()):
        rule = f"cp of layers with states {LATER}"
        yield Problem(f"pools.{pool.name}.layout.cp", "> 1", rule, "cp: 1")


def _of_phases(pool: Pool, resolved: ResolvedServing) -> Iterator[Problem]:
    """Yield what is unknown of the hosts that hold caches and weights while a pool changes its layout."""
    node, workload = resolved.cluster.pool.node, resolved.plan.workload
    field = "cluster.pools.0.node"
    if node.host_bytes_per_s is None:
        rule = f"nobody has said how fast {node.name}'s devices reach the host's memory, and layouts change over it"
        hint = "a cluster file whose node has host_gbyte_per_s_per_device (PCIe 5.0 x16 is 63)"
        yield Problem(f"{field}.host_gbyte_per_s_per_device", None, rule, hint)
    endless = workload.concurrency is None and workload.rate_per_s is None
    if node.host_memory_bytes is None and endless:
        rule = f"nobody has said how large the memory of {node.name} is, and a plan without a load fills it with caches"
        hint = "concurrency or rate_per_s, or a cluster file whose node has host_memory_gib"
        yield Problem(f"{field}.host_memory_gib", None, rule, hint)
    if node.host_memory_bytes is not None:
        held = buffer_sequences(served_model(resolved), pool_arrays(pool, resolved), plan_load(resolved))
        if held < 1:
            rule = "the host's memory has no room for a copy of the weights and the cache of a request"
            hint = "one layout, narrower weights, or more host_memory_gib"
            yield Problem(f"{field}.host_memory_gib", node.host_memory_bytes / GIB, rule, hint)
