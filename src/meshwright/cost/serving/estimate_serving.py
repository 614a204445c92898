"""Estimate the steady state of a serving plan under its load; refuse by name what has no estimate yet."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, nan

from meshwright.cost.serving.hardware_times import serving_times_for
from meshwright.cost.serving.pools_state import PoolsState, disaggregated_pools_state, serving_state
from meshwright.cost.serving.replica_load import ReplicaLoad
from meshwright.cost.serving.replica_pools import PoolArrays, ServedModel
from meshwright.errors import Problem, UnsupportedError
from meshwright.plans.serving.resolve_serving import ResolvedServing
from meshwright.plans.serving.serving_plan import Pool
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats
from meshwright.stack.serving.serving_stack import load_serving_stack

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
    if "serve" in by_task:
        state = serving_state(served, arrays["serve"], load)
    else:
        state = disaggregated_pools_state(served, arrays["prefill"], arrays["decode"], load)
    pools = tuple((pool, arrays[pool.does]) for pool in plan.pools.values())
    return ServingEstimate(served=served, pools=pools, load=load, state=state)


def pool_arrays(pool: Pool, resolved: ResolvedServing) -> PoolArrays:
    """Return the replicas of a pool as numbers."""
    layout = next(iter(pool.layouts.values()))
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


def _of_pool(pool: Pool, *, has_states: bool) -> Iterator[Problem]:
    field = f"pools.{pool.name}"
    layouts = set(pool.layouts.values())
    if len(layouts) > 1:
        yield Problem(f"{field}.layouts", len(layouts), f"a layout for each phase {LATER}", "one layout")
    if has_states and any(layout.cp > 1 for layout in layouts):
        yield Problem(f"{field}.layout.cp", "> 1", f"cp of layers with states {LATER}", "cp: 1")
