"""Make the workers of a run from its columns ``gpus, tp, pp, dp, ep`` and ``disagg``.

With experts and ep > 1, ``dp`` replicates attention alone, else whole replicas. An absent degree is 1, except that an
absent tp fills the devices that are given; experts fill the ranks of a stage: ep·etp = tp·attention_dp. Devices beyond
pp·tp·dp hold further replicas. An Ironwood chip shows its two cores as devices (docs.cloud.google.com/tpu/docs/tpu7x),
so that a layout of twice as many ranks as chips halves tp.
"""

from dataclasses import dataclass
from functools import cache

from meshwright.model.load import load_model
from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.validation.serving.disaggregated_workers import Disaggregated, Side
from meshwright.validation.serving.serving_row import Does, Workers

CORES = {"tpu-7x": 2}
"""Ranks of a device, for devices that count as several."""


@dataclass(frozen=True, slots=True)
class Degrees:
    """The degrees of a row; None: not given."""

    tp: int | None
    pp: int | None
    dp: int | None
    ep: int | None


@dataclass(frozen=True, slots=True)
class WorkerLayouts:
    """The workers of a run, and what was assumed."""

    workers: tuple[Workers, ...]
    remarks: tuple[str, ...] = ()


def worker_layouts(
    model: str, device: str, devices: int | None, degrees: Degrees, pools: Disaggregated | None
) -> WorkerLayouts:
    """Return the workers of a run. Raises ValueError if the degrees and the devices contradict each other."""
    experts = _has_experts(model)
    if pools is not None:
        return _of_pools(pools, devices, experts)
    return _of_degrees(degrees, devices, experts, CORES.get(device, 1))


def _of_degrees(degrees: Degrees, devices: int | None, experts: bool, cores: int) -> WorkerLayouts:
    pp, dp, tp = degrees.pp or 1, degrees.dp or 1, degrees.tp
    remarks: tuple[str, ...] = ()
    if tp is None:
        if devices is None:
            raise ValueError("gpus, tp: not given")
        if devices % (pp * dp):
            raise ValueError(f"gpus = {devices} must be a multiple of pp·dp = {pp * dp}")
        tp = devices // (pp * dp)
        remarks = (f"tp is not given and taken as gpus/(pp·dp) = {tp}",)
    ranks = tp * pp * dp
    if cores > 1 and devices is not None and ranks == cores * devices and tp % cores == 0:
        tp, ranks = tp // cores, devices
    total = ranks if devices is None else devices
    if total % ranks:
        raise ValueError(f"gpus = {total} must be a multiple of tp·pp·dp = {ranks}")
    spread = experts and (degrees.ep or 1) > 1
    attention_dp = dp if spread else 1
    layout = _layout(tp, pp, attention_dp, degrees.ep if spread else None, experts)
    return WorkerLayouts((Workers(does="serve", replicas=total // layout.devices, layout=layout),), remarks)


def _of_pools(pools: Disaggregated, devices: int | None, experts: bool) -> WorkerLayouts:
    prefill = _workers("prefill", pools.prefill, pools.prefill.workers or 1, experts)
    count = pools.decode.workers
    remarks: tuple[str, ...] = ()
    if count is None:
        if devices is None:
            raise ValueError("gpus, disagg: the number of decode workers is not given")
        left = devices - prefill.devices
        count, rest = divmod(left, pools.decode.devices)
        if rest or count < 1:
            rule = f"gpus − prefill's devices = {left} must be a multiple of a decode worker's {pools.decode.devices}"
            raise ValueError(rule)
    decode = _workers("decode", pools.decode, count, experts)
    used = prefill.devices + decode.devices
    if devices is None:
        remarks = (f"gpus is not given and taken as those of the workers, {used}",)
    elif used != devices:
        raise ValueError(f"gpus = {devices} must be the devices of the workers, {used}")
    return WorkerLayouts((prefill, decode), remarks)


def _workers(does: Does, side: Side, replicas: int, experts: bool) -> Workers:
    layout = _layout(side.tp, side.pp, side.attention_dp, side.ep, experts, side.etp)
    return Workers(does=does, replicas=replicas, layout=layout, batch=side.batch)


def _layout(
    tp: int, pp: int, attention_dp: int, ep: int | None, experts: bool, etp: int | None = None
) -> ReplicaLayout:
    """Return a layout whose experts fill the ranks of a stage."""
    ranks, ep = tp * attention_dp, ep or 1
    if not experts:
        return ReplicaLayout(tp=tp, pp=pp, attention_dp=attention_dp)
    if ranks % ep or (etp is not None and ep * etp != ranks):
        given = f"ep = {ep}" if etp is None else f"ep·moetp = {ep * etp}"
        raise ValueError(f"{given} must {'divide' if etp is None else 'be'} tp·attention_dp = {ranks}")
    return ReplicaLayout(tp=tp, pp=pp, attention_dp=attention_dp, ep=ep, etp=ranks // ep)


@cache
def _has_experts(model: str) -> bool:
    return load_model(model).architecture.moe is not None
