"""The Report of a plan that serves: latency of a mean request, tokens per second, memory, money and energy.

    latency = TTFT + (osl − 1)·TPOT,    dollars/output token = price of the pools' devices/(X·osl)

Energy is an upper bound, the devices' power limits for all of the time. Devices that no pool uses are neither paid for
nor counted in figures per device.
"""

from collections.abc import Iterator
from math import isfinite
from typing import Any

from meshwright.cluster.cluster import Pool as DevicePool
from meshwright.cost.serving.estimate_serving import ServingEstimate, estimate_serving
from meshwright.cost.serving.host_cache import buffered_bytes
from meshwright.cost.serving.levels import LevelTable
from meshwright.cost.serving.phase_report import turn_breakdown, turn_json
from meshwright.cost.serving.pools_state import PoolState, decode_limit, turns_limit
from meshwright.cost.serving.replica_pools import PoolArrays
from meshwright.cost.serving.request_means import RequestMeans, plan_level
from meshwright.plans.serving.resolve_serving import ResolvedServing
from meshwright.plans.serving.serving_plan import Pool
from meshwright.program.serving.kv_bytes import replica_bytes_per_token
from meshwright.result import ServingReport
from meshwright.units import format_bytes
from meshwright.workload.serving.serving_workload import Objectives

AT_LIMIT = 0.99
"""Part of a limit on latency from which on it is what limits the plan."""
PER_MILLION = 1e6
NO_MEASUREMENT = "null: no measured memory of serving runs"


def serving_report(resolved: ResolvedServing, levels: LevelTable | None = None) -> ServingReport:
    """Predict a legal plan; ``levels`` of a user's runs go before ours.

    Raises UnsupportedError with everything in it that is not predicted yet.
    """
    return report_of(estimate_serving(resolved), resolved, levels)


def report_of(
    found: ServingEstimate, resolved: ResolvedServing, levels: LevelTable | None = None
) -> ServingReport:
    """Return the Report of a plan that was estimated."""
    means = RequestMeans.of(found, plan_level(resolved, levels))
    device, devices = resolved.cluster.pool, resolved.plan.devices
    fits, requests, rate = bool(found.state.fits), means.requests_per_s, means.output_tokens_per_s
    memory = _memory(found, resolved)
    price, watts = device.usd_per_device_hour, device.device.power_w
    usd = None if price is None else price.value * devices
    return ServingReport(
        kind="predicted",
        unit="request",
        step_time_s=means.latency_s,
        step_time_low_s=means.latency_ends_s[0],
        step_time_high_s=means.latency_ends_s[1],
        tokens_per_s=rate,
        tokens_per_s_per_device=rate / devices,
        mfu=None,
        mfu_causal=None,
        hfu=None,
        memory_bytes=memory,
        fits=fits,
        fits_probability=None,
        breakdown_s=_breakdown(found, means),
        usd_per_hour=usd,
        usd_per_step=None if usd is None or not requests else usd / 3600 / requests,
        joules_per_step=None if watts is None or not requests else watts * devices / requests,
        origin=_origins(resolved, device, means),
        remarks=tuple(dict.fromkeys([*map(str, resolved.warnings), *_assumptions(found, resolved)])),
        serving=_serving(found, resolved, means, usd),
    )


def _serving(
    found: ServingEstimate,
    resolved: ResolvedServing,
    means: RequestMeans,
    usd: float | None,
) -> dict[str, Any]:
    decoding, devices, rate = found.state.decoding, resolved.plan.devices, means.output_tokens_per_s
    watts = resolved.cluster.pool.device.power_w
    arrays = next(arrays for pool, arrays in found.pools if pool.does != "prefill")
    return {
        "ttft_s": means.ttft_s,
        "ttft_low_s": means.ttft_ends_s[0],
        "ttft_high_s": means.ttft_ends_s[1],
        "tpot_s": means.tpot_s,
        "tpot_low_s": means.tpot_ends_s[0],
        "tpot_high_s": means.tpot_ends_s[1],
        "request_latency_s": means.latency_s,
        "requests_per_s": means.requests_per_s,
        "output_tokens_per_s": rate,
        "output_tokens_per_s_low": means.throughput_ends[0],
        "output_tokens_per_s_high": means.throughput_ends[1],
        "output_tokens_per_s_per_device": rate / devices,
        "usd_per_million_output_tokens": usd / 3600 / rate * PER_MILLION
        if usd is not None and rate
        else None,
        "joules_per_output_token": watts * devices / rate if watts is not None and rate else None,
        "batch": means.batch,
        "kv_bytes_per_token": float(replica_bytes_per_token(resolved.model, arrays.degrees, arrays.formats)),
        "kv_capacity_tokens": int(decoding.capacity.tokens),
        "limited_by": _limit(found, arrays, resolved.plan.workload.objectives, means),
        "idle_devices": resolved.idle_devices,
        "pools": {pool.name: _pool(pool, found, means) for pool, _ in found.pools},
        "level": means.level_json(),
        **({} if found.state.turns is None else {"cycle": turn_json(found.state.turns)}),
    }


def _pool(pool: Pool, found: ServingEstimate, means: RequestMeans) -> dict[str, Any]:
    """Return the figures of a pool; those of a pool that decodes have the level of the time per token."""
    state, decodes = found.state.pools[pool.does], pool.does != "prefill"
    return {
        "does": pool.does,
        "replicas": pool.replicas,
        "devices": pool.devices,
        "batch": means.batch if decodes else _number(float(state.batch)),
        "iteration_s": float(state.iteration_s) * (means.level.tpot.factor if decodes else 1.0),
        "utilisation": _number(float(state.utilisation)),
        "kv_capacity_tokens": int(state.capacity.tokens),
        "memory_bytes": sum(_pool_ledger(pool, found).values()),
    }


def _limit(found: ServingEstimate, arrays: PoolArrays, objectives: Objectives, means: RequestMeans) -> str:
    """Return the name of what limits the plan."""
    named = "" if found.state.fits else "kv_room"
    named = named or str(found.state.steady.limited_by)
    for name, limit, mean in (
        ("ttft", objectives.ttft_ms, means.ttft_s),
        ("tpot", objectives.tpot_ms, means.tpot_s),
    ):
        if not named and limit is not None and isfinite(mean) and mean * 1e3 >= AT_LIMIT * limit:
            named = name
    if found.state.turns is not None:
        return named or str(turns_limit(found.served, arrays, found.state.turns))
    return named or str(decode_limit(found.served, arrays, found.state.decoding))


def _breakdown(found: ServingEstimate, means: RequestMeans) -> dict[str, float]:
    """Return a request's seconds in prefill, in waiting, and in decoding; its level is that of the first token."""
    if not isfinite(means.ttft_s):
        return {}
    if found.state.turns is not None:
        return turn_breakdown(found.state.turns, found.state.steady, means, found.served.waiting.prompt_s)
    factor = means.ttft_s / float(found.state.steady.ttft_s)
    first = found.state.pools.get("serve") or found.state.pools["prefill"]
    alone = float(first.phases.at(first.batch if "serve" in found.state.pools else 0.0).own_s)
    parts = {
        "prefill": factor * alone,
        "engine": factor * found.served.waiting.prompt_s,
        "handover": factor * float(found.state.hand_over_s),
    }
    waiting = max(means.ttft_s - sum(parts.values()), 0.0)
    return {**parts, "waiting": waiting, "decode": means.latency_s - means.ttft_s}


def _memory(found: ServingEstimate, resolved: ResolvedServing) -> dict[str, Any]:
    """Return the ledger of the fullest device of the fullest pool, and that of every pool."""
    ledgers = {pool.name: _pool_ledger(pool, found) for pool, _ in found.pools}
    worst = max(ledgers, key=lambda name: sum(ledgers[name].values()))
    capacity = resolved.cluster.pool.device.memory_bytes
    return {
        "total": sum(ledgers[worst].values()),
        "capacity": capacity,
        "usable": capacity,
        **ledgers[worst],
        "worst_pool": worst,
        "pools": {name: {**ledger, "total": sum(ledger.values())} for name, ledger in ledgers.items()},
    }


def _pool_ledger(pool: Pool, found: ServingEstimate) -> dict[str, int]:
    """Return bytes of the fullest device of a pool: in the fuller phase of one that changes its layout."""
    own, turns = _ledger(found.state.pools[pool.does]), found.state.turns
    other = own if turns is None else _ledger(turns.prefill)
    return max(own, other, key=lambda ledger: sum(ledger.values()))


def _ledger(state: PoolState) -> dict[str, int]:
    """Return bytes of the fullest device of a replica; blocks of the cache are taken when an engine starts."""
    capacity = state.capacity
    return {
        "parameters": int(capacity.weights_bytes),
        "kv": max(int(capacity.room_bytes), 0),
        "activations": int(capacity.activation_bytes),
        "buffers": int(capacity.buffer_bytes),
    }


def _assumptions(found: ServingEstimate, resolved: ResolvedServing) -> Iterator[str]:
    """Yield what a prediction assumes that the cluster does not say."""
    turns, node = found.state.turns, resolved.cluster.pool.node
    if turns is None or node.host_memory_bytes is not None:
        return
    arrays = found.pools[0][1]
    held = float(turns.turn.sequences) * float(buffered_bytes(found.served, arrays, found.load))
    yield (
        f"assumed: the host's memory of {node.name}, whose size nobody has said, takes the caches of "
        f"{float(turns.turn.sequences):,.0f} requests of each replica, {format_bytes(held)}, and the weights"
    )


def _origins(resolved: ResolvedServing, device: DevicePool, means: RequestMeans) -> dict[str, str]:
    price = device.usd_per_device_hour
    return {
        "step_time_s": "predicted: latency of a mean request by Little's law; docs/serving.md"
        if isfinite(means.latency_s)
        else "null: requests come faster than the pools serve them, or the plan does not fit",
        "step_time_low_s": "80 % intervals of both times, added up; scatter of measured runs around predictions",
        "step_time_high_s": "as step_time_low_s",
        "memory_bytes": "predicted: weights by format, blocks of the cache, an iteration's activations, buffers",
        "fits_probability": NO_MEASUREMENT,
        "mfu": "null: not defined for requests",
        "usd_per_hour": "null: no price known"
        if price is None
        else f"{price.source} ({price.date}); devices of the pools, not idle ones",
        "joules_per_step": "null: board power unknown"
        if device.device.power_w is None
        else "upper bound: board power limit × devices of the pools × time; hosts and network not included",
        "serving": f"predicted; {resolved.plan.stack}'s seconds outside kernels fitted on measured runs; level: "
        + means.level.name,
    }


def _number(value: float) -> float:
    """Return 0 where a plan that does not fit has no number."""
    return value if isfinite(value) else 0.0
