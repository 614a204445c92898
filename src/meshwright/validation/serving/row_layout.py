"""Make the workers of a run from its columns ``gpus, tp, pp, dp, ep`` and ``disagg``.

With experts and ep > 1, ``dp`` replicates attention alone, else whole replicas. An absent degree is 1, except that an
absent tp fills the devices that are given; experts fill the ranks of a stage: ep·etp = tp·attention_dp. Devices beyond
pp·tp·dp hold further replicas. An Ironwood chip shows its two cores as devices (docs.cloud.google.com/tpu/docs/tpu7x),
so that a layout of twice as many ranks as chips halves tp.

A text of ``disagg`` that counts no workers names one of each, and ``gpus`` are those of one of each. Runs that a table
has in both forms show what it leaves out: "tp8 adp1 moetp1 ep8 | tp32 adp1 moetp4 ep8" on 40 devices is also
"2 workers x tp1 adp8 ep8 | 1 workers x tp1 adp32 ep32" on 48 (TTFT 2642 ms, TPOT 25.6 ms), and "tp4 moetp4 ep1" stays
tp4. So prefill has as many workers as decode needs, and with latent attention tp is attention_dp where there is ep, or
where tp would cut heads or the blocks of 128 of an expert's width. Workers of which neither degrees nor devices are
given share a usual node.
"""

from dataclasses import dataclass, replace
from functools import cache

from meshwright.cluster.catalog import usual_node
from meshwright.model.architecture import Architecture
from meshwright.model.load import load_model
from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.validation.serving.disaggregated_workers import Disaggregated, Side
from meshwright.validation.serving.serving_row import Does, Workers

CORES = {"tpu-7x": 2}
"""Ranks of a device, for devices that count as several."""
BLOCK = 128
"""Neighbouring weights with a common scale, which no rank has a part of."""
UNCOUNTED = (
    "the number of workers is not given: one that decodes, as many that prefill as it needs, "
    "and tp of latent attention that cuts no heads is attention_dp"
)


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
    if pools is not None:
        return _of_pools(pools, devices, model, device)
    return _of_degrees(degrees, devices, _architecture(model).moe is not None, CORES.get(device, 1))


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


def _of_pools(pools: Disaggregated, devices: int | None, model: str, device: str) -> WorkerLayouts:
    count = _decode_workers(pools, devices)
    remarks: tuple[str, ...] = ()
    sides = {"prefill": pools.prefill, "decode": pools.decode}
    uncounted = all(side.workers is None for side in sides.values())
    if uncounted:
        remarks += (UNCOUNTED,)
        sides = {name: _attention_dp(side, model) for name, side in sides.items()}
    elif devices is None and all(side.ep is None and side.tp == 1 for side in sides.values()):
        node = usual_node(device).devices
        tp = max(node // ((pools.prefill.workers or 1) + count), 1)
        remarks += (
            f"tp is not given and taken as that of workers that share a node of {node} devices, {tp}",
        )
        sides = {name: replace(side, tp=tp) for name, side in sides.items()}
    experts = _architecture(model).moe is not None
    workers = (
        _workers("prefill", sides["prefill"], pools.prefill.workers or 1, experts, counted=not uncounted),
        _workers("decode", sides["decode"], count, experts),
    )
    used = sum(one.devices for one in workers)
    if devices is None:
        remarks += (f"gpus is not given and taken as those of the workers, {used}",)
    elif used != devices:
        raise ValueError(f"gpus = {devices} must be the devices of the workers, {used}")
    return WorkerLayouts(workers, remarks)


def _decode_workers(pools: Disaggregated, devices: int | None) -> int:
    """Return the workers that decode: where they are not counted, those of all devices that do not prefill."""
    if pools.decode.workers is not None:
        return pools.decode.workers
    if devices is None:
        raise ValueError("gpus, disagg: the number of decode workers is not given")
    left = devices - (pools.prefill.workers or 1) * pools.prefill.devices
    count, rest = divmod(left, pools.decode.devices)
    if rest or count < 1:
        rule = f"gpus − prefill's devices = {left} must be a multiple of a decode worker's {pools.decode.devices}"
        raise ValueError(rule)
    return count


def _attention_dp(side: Side, model: str) -> Side:
    """Return a worker of latent attention with data-parallel attention, if its tp cannot be one of tensors."""
    arch = _architecture(model)
    if arch.latent is None or arch.moe is None or side.attention_dp > 1 or side.tp == 1:
        return side
    whole = arch.heads % side.tp == 0 and arch.moe.intermediate % (side.tp * BLOCK) == 0
    if whole and (side.ep or 1) == 1:
        return side
    return replace(side, tp=1, attention_dp=side.tp, ep=side.tp, etp=1)


def _workers(does: Does, side: Side, replicas: int, experts: bool, *, counted: bool = True) -> Workers:
    layout = _layout(side.tp, side.pp, side.attention_dp, side.ep, experts, side.etp)
    return Workers(does=does, replicas=replicas, layout=layout, batch=side.batch, counted=counted)


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
def _architecture(model: str) -> Architecture:
    return load_model(model).architecture
