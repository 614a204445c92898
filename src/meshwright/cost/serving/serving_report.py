"""The Report of a plan that serves: latency of a mean request, tokens per second, memory, money and energy.

    latency = TTFT + (osl − 1)·TPOT,    dollars/output token = price of the pools' devices/(X·osl)

Energy is an upper bound, the devices' power limits for all of the time. Devices that no pool uses are neither paid for
nor counted in figures per device.
"""

from math import isfinite, nan
from typing import Any

from meshwright.cluster.cluster import Pool as DevicePool
from meshwright.cost.serving.estimate_serving import ServingEstimate, estimate_serving
from meshwright.cost.serving.pools_state import PoolState, decode_limit
from meshwright.cost.serving.replica_pools import PoolArrays
from meshwright.plans.serving.resolve_serving import ResolvedServing
from meshwright.plans.serving.serving_plan import Pool
from meshwright.program.serving.kv_bytes import replica_bytes_per_token
from meshwright.result import ServingReport
from meshwright.workload.serving.serving_workload import Objectives

AT_LIMIT = 0.99
"""Part of a limit on latency from which on it is what limits the plan."""
PER_MILLION = 1e6
NO_MEASUREMENT = "null: no measured memory of serving runs"


def serving_report(resolved: ResolvedServing) -> ServingReport:
    """Predict a legal plan. Raises UnsupportedError with everything in it that is not predicted yet."""
    return report_of(estimate_serving(resolved), resolved)


def report_of(found: ServingEstimate, resolved: ResolvedServing) -> ServingReport:
    """Return the Report of a plan that was estimated."""
    steady, load = found.state.steady, found.load
    device, devices = resolved.cluster.pool, resolved.plan.devices
    fits, steps = bool(found.state.fits), float(load.output_tokens) - 1
    ttft, tpot = (float(steady.ttft_s), float(steady.tpot_s)) if fits else (nan, nan)
    latency = ttft + (steps * tpot if steps > 0 else 0.0)
    requests = _number(float(steady.requests_per_s)) if fits else 0.0
    rate = requests * float(load.output_tokens)
    memory = _memory(found, resolved)
    price, watts = device.usd_per_device_hour, device.device.power_w
    usd = None if price is None else price.value * devices
    return ServingReport(
        kind="predicted",
        unit="request",
        step_time_s=latency,
        step_time_low_s=None,
        step_time_high_s=None,
        tokens_per_s=rate,
        tokens_per_s_per_device=rate / devices,
        mfu=None,
        mfu_causal=None,
        hfu=None,
        memory_bytes=memory,
        fits=fits,
        fits_probability=None,
        breakdown_s=_breakdown(found, ttft, steps * tpot),
        usd_per_hour=usd,
        usd_per_step=None if usd is None or not requests else usd / 3600 / requests,
        joules_per_step=None if watts is None or not requests else watts * devices / requests,
        origin=_origins(resolved, device),
        remarks=tuple(dict.fromkeys(str(problem) for problem in resolved.warnings)),
        serving=_serving(found, resolved, (ttft, tpot, latency, rate), usd),
    )


def _serving(
    found: ServingEstimate,
    resolved: ResolvedServing,
    means: tuple[float, float, float, float],
    usd: float | None,
) -> dict[str, Any]:
    ttft, tpot, latency, rate = means
    decoding, devices = found.state.decoding, resolved.plan.devices
    watts = resolved.cluster.pool.device.power_w
    writing, arrays = next((one, arrays) for one, arrays in found.pools if one.does != "prefill")
    return {
        "ttft_s": ttft,
        "ttft_low_s": None,
        "ttft_high_s": None,
        "tpot_s": tpot,
        "tpot_low_s": None,
        "tpot_high_s": None,
        "request_latency_s": latency,
        "requests_per_s": rate / float(found.load.output_tokens),
        "output_tokens_per_s": rate,
        "output_tokens_per_s_per_device": rate / devices,
        "usd_per_million_output_tokens": usd / 3600 / rate * PER_MILLION
        if usd is not None and rate
        else None,
        "joules_per_output_token": watts * devices / rate if watts is not None and rate else None,
        "batch": _number(float(decoding.batch)),
        "kv_bytes_per_token": float(replica_bytes_per_token(resolved.model, arrays.degrees, arrays.formats)),
        "kv_capacity_tokens": int(decoding.capacity.tokens),
        "limited_by": _limit(found, arrays, resolved.plan.workload.objectives, (ttft, tpot)),
        "idle_devices": resolved.idle_devices,
        "pools": {pool.name: _pool(pool, found.state.pools[pool.does]) for pool, _ in found.pools},
        "decoding_pool": writing.name,
    }


def _pool(pool: Pool, state: PoolState) -> dict[str, Any]:
    return {
        "does": pool.does,
        "replicas": pool.replicas,
        "devices": pool.devices,
        "batch": _number(float(state.batch)),
        "iteration_s": float(state.iteration_s),
        "utilisation": _number(float(state.utilisation)),
        "kv_capacity_tokens": int(state.capacity.tokens),
        "memory_bytes": sum(_ledger(state).values()),
    }


def _limit(
    found: ServingEstimate, arrays: PoolArrays, objectives: Objectives, means: tuple[float, float]
) -> str:
    """Return the name of what limits the plan."""
    named = "" if found.state.fits else "kv_room"
    named = named or str(found.state.steady.limited_by)
    for name, limit, mean in zip(
        ("ttft", "tpot"), (objectives.ttft_ms, objectives.tpot_ms), means, strict=True
    ):
        if not named and limit is not None and isfinite(mean) and mean * 1e3 >= AT_LIMIT * limit:
            named = name
    return named or str(decode_limit(found.served, arrays, found.state.decoding))


def _breakdown(found: ServingEstimate, ttft: float, decoding: float) -> dict[str, float]:
    """Return a request's seconds in prefill, in waiting, and in decoding."""
    if not isfinite(ttft):
        return {}
    first = found.state.pools.get("serve") or found.state.pools["prefill"]
    alone = float(first.phases.at(first.batch if "serve" in found.state.pools else 0.0).own_s)
    engine = found.served.waiting.prompt_s
    hand_over = float(found.state.hand_over_s)
    return {
        "prefill": min(alone, ttft),
        "engine": engine,
        "handover": hand_over,
        "waiting": max(ttft - alone - engine - hand_over, 0.0),
        "decode": decoding if isfinite(decoding) else 0.0,
    }


def _memory(found: ServingEstimate, resolved: ResolvedServing) -> dict[str, Any]:
    """Return the ledger of the fullest device of the fullest pool, and that of every pool."""
    ledgers = {pool.name: _ledger(found.state.pools[pool.does]) for pool, _ in found.pools}
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


def _ledger(state: PoolState) -> dict[str, int]:
    """Return bytes of the fullest device of a replica; blocks of the cache are taken when an engine starts."""
    capacity = state.capacity
    return {
        "parameters": int(capacity.weights_bytes),
        "kv": max(int(capacity.room_bytes), 0),
        "activations": int(capacity.activation_bytes),
        "buffers": int(capacity.buffer_bytes),
    }


def _origins(resolved: ResolvedServing, device: DevicePool) -> dict[str, str]:
    price = device.usd_per_device_hour
    return {
        "step_time_s": "predicted: latency of a mean request by Little's law; docs/serving.md",
        "step_time_low_s": "null: no interval",
        "memory_bytes": "predicted: weights by format, blocks of the cache, an iteration's activations, buffers",
        "fits_probability": NO_MEASUREMENT,
        "mfu": "null: not defined for requests",
        "usd_per_hour": "null: no price known"
        if price is None
        else f"{price.source} ({price.date}); devices of the pools, not idle ones",
        "joules_per_step": "null: board power unknown"
        if device.device.power_w is None
        else "upper bound: board power limit × devices of the pools × time; hosts and network not included",
        "serving": f"predicted; {resolved.plan.stack}'s seconds outside kernels fitted on measured runs",
    }


def _number(value: float) -> float:
    """Return 0 where a plan that does not fit has no number."""
    return value if isfinite(value) else 0.0
