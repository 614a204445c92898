"""Predict one plan as a Report: by closed forms if the plan has a short form, otherwise by simulation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshwright.cluster.cluster import Cluster
from meshwright.cost.closed_form.evaluate_plans import pipeline_groups
from meshwright.cost.closed_form.plan_group import PlanGroup
from meshwright.cost.closed_form.step_parts import pipeline_lengths, step_parts
from meshwright.cost.constant_values import parts_of_name
from meshwright.cost.constants import KERNEL_NUMBERS, constant_on, kernels
from meshwright.cost.flops_per_token import (
    FORWARD_PART,
    model_flops_per_token,
    recomputed_flops_per_token,
)
from meshwright.cost.memory.memory_breakdown import KEYS, fits, fits_host_memory, usable_device_bytes
from meshwright.cost.memory.rank_ledgers import host_bytes, rank_ledgers
from meshwright.cost.pipeline_time.offload_copies import OFFLOAD
from meshwright.cost.synchronisation.exchange_rows import ExchangeSummary
from meshwright.cost.uncertainty.memory_error import fits_probability, memory_interval, memory_origin
from meshwright.cost.uncertainty.step_error import StepError, plan_errors
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.forms.conversion import short_of_only_layout, shorten_ignoring_layers
from meshwright.plans.forms.long import LongPlan, Stages
from meshwright.plans.forms.short import Recompute, ShortPlan
from meshwright.plans.layers.layer_assignment import stage_layers
from meshwright.plans.layers.plan_of_layout import plan_of_main_layout
from meshwright.plans.layers.recompute_by_layer import layer_recomputes
from meshwright.plans.setting import GivenConstants, Setting
from meshwright.plans.synchronisation.synchronisation import shares_per_replica
from meshwright.program.lowering.lower_plan import recomputed_model
from meshwright.result import Report
from meshwright.units import GIB


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds by category and, per pipeline rank, bytes by kind; ``method`` says how they were found.

    ``host`` is the most that a device of each pipeline rank has on its host at once, in bytes. ``rounds`` are the
    exchanges between replicas of a plan that has entries of ``synchronise``.
    """

    parts: dict[str, float]
    ledgers: tuple[dict[str, int], ...]
    method: str
    host: tuple[int, ...]
    rounds: ExchangeSummary | None = None


def closed_form(
    short: ShortPlan,
    setting: Setting,
    stages: Stages = "balanced",
    recomputes: tuple[Recompute, ...] | None = None,
) -> Estimate:
    """Estimate a plan that has a short form, but for ``stages`` that it writes out and what each layer recomputes."""
    return group_estimate(group_of(short, setting, stages, recomputes))


def group_estimate(group: PlanGroup) -> Estimate:
    """Return the estimate of the one plan of a group."""
    (length,) = pipeline_lengths([group], silent=True)
    parts = {name: float(value[0]) for name, value in step_parts(group, length).items()}
    table = rank_ledgers(group)
    ledgers = tuple({key: int(table[key][0, rank]) for key in KEYS} for rank in range(group.ranks))
    host = tuple(map(int, host_bytes(group)[0]))
    return Estimate(parts, ledgers, "closed forms over the lowered plan's bodies", host)


def group_of(
    short: ShortPlan,
    setting: Setting,
    stages: Stages = "balanced",
    recomputes: tuple[Recompute, ...] | None = None,
) -> PlanGroup:
    """One plan as a group of its own; ``stages`` and ``recomputes`` as it writes them out."""
    plans = replace(from_shorts([short]), stages=stages, layer_recomputes=recomputes)
    ((_, group),) = pipeline_groups(plans, setting)
    return group


def report(plan: LongPlan, estimate: Estimate, setting: Setting, error: StepError | None = None) -> Report:
    """Return the Report of an estimate; ``error`` is that of its step time, where it is known already."""
    step_s = sum(estimate.parts.values())
    cluster, workload = setting.cluster, setting.workload
    tokens_per_s = workload.tokens_per_step / step_s
    memory = memory_table(plan, estimate, setting)
    usd = cluster.usd_per_hour
    error = error or plan_errors(as_array(plan, setting), setting)[0]
    return Report(
        kind="predicted",
        unit="step" if estimate.rounds is None else estimate.rounds.unit,
        step_time_s=step_s,
        step_time_low_s=error.interval.low * step_s,
        step_time_high_s=error.interval.high * step_s,
        interval=error.to_json(),
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_device=tokens_per_s / cluster.devices,
        **_utilisations(tokens_per_s, plan, setting),
        memory_bytes=memory,
        fits=bool(fits(memory["total"], cluster)) and hosts_fit(memory, cluster),
        fits_probability=fits_probability(memory["total"], setting),
        breakdown_s=estimate.parts,
        usd_per_hour=usd,
        usd_per_step=None if usd is None else usd * step_s / 3600,
        joules_per_step=_joules(step_s, setting),
        origin=_origins(estimate, setting, error),
        remarks=_remarks(memory, cluster),
        **({} if estimate.rounds is None else estimate.rounds.of_report(step_s)),
    )


def as_array(plan: LongPlan, setting: Setting) -> PlanArrays:
    """Return the plan as an array; without what a short form cannot say, which its constants hardly depend on."""
    plan = plan.model_copy(update={"offload": None}) if plan.in_chunks else plan
    short = shorten_ignoring_layers(plan)
    if short is not None:
        recomputes = layer_recomputes(plan, setting.model.architecture.layers)
        return replace(from_shorts([short]), stages=plan.pipeline.stages, layer_recomputes=recomputes)
    return from_shorts([short_of_only_layout(plan_of_main_layout(plan))])


def memory_table(plan: LongPlan, estimate: Estimate, setting: Setting) -> dict[str, Any]:
    """Return the worst rank's ledger with its total and capacity, and every rank's under ``stages``."""
    contents = stage_layers(plan.pipeline, setting.model.architecture.layers)
    totals = [sum(ledger.values()) for ledger in estimate.ledgers]
    stages = [
        {
            "rank": rank,
            "layers": [
                f"{c.first}..{c.last - 1}"
                for c, placed in zip(contents, plan.pipeline.placement, strict=True)
                if placed == rank and c.count
            ],
            "total": totals[rank],
            **ledger,
        }
        for rank, ledger in enumerate(estimate.ledgers)
    ]
    worst = int(np.argmax(totals))
    capacity = setting.cluster.pool.device.memory_bytes
    interval = memory_interval(setting)
    return {
        "total": totals[worst],
        "total_low": int(interval.low * totals[worst]),
        "total_high": int(interval.high * totals[worst]),
        "capacity": capacity,
        "usable": int(usable_device_bytes(setting.cluster)),
        **estimate.ledgers[worst],
        **_on_hosts(estimate, setting),
        "worst_rank": worst,
        "stages": stages,
    }


def _on_hosts(estimate: Estimate, setting: Setting) -> dict[str, int]:
    """Return the peak bytes on a node's host, all its devices like the fullest rank, and the host's memory."""
    node = setting.cluster.pool.node
    if not any(estimate.host) or node.host_memory_bytes is None:
        return {}
    devices = setting.cluster.pool.devices_of_host
    return {"host": devices * max(estimate.host), "host_capacity": node.host_memory_bytes}


def hosts_fit(memory: Mapping[str, Any], cluster: Cluster) -> bool:
    """Return true if what is offloaded stays within its usual share of host memory."""
    return "host" not in memory or bool(fits_host_memory(memory["host"], cluster, memory["host_capacity"]))


def _remarks(memory: Mapping[str, Any], cluster: Cluster) -> tuple[str, ...]:
    if hosts_fit(memory, cluster):
        return ()
    share = constant_on(cluster, "usable_host_memory")
    usable = f"{share:.0%} of its {memory['host_capacity'] / GIB:,.0f} GiB"
    return (
        f"what is offloaded takes {memory['host'] / GIB:,.0f} GiB of a host, more than {usable}: offload less",
    )


def _utilisations(tokens_per_s: float, plan: LongPlan, setting: Setting) -> dict[str, Any]:
    cluster, workload, model = setting.cluster, setting.workload, setting.model
    peak = cluster.pool.device.peak_flops.get(workload.peak_precision)
    if not peak:
        return {"mfu": None, "mfu_causal": None, "hfu": None}
    rate = tokens_per_s / (peak * cluster.devices)
    seq_len, documents, encoder = workload.seq_len, workload.documents, workload.encoder_lengths
    whole = model_flops_per_token(model, seq_len, causal=False, documents=documents, encoder=encoder)
    of_layers = layer_recomputes(plan, model.architecture.layers)
    planned = recomputed_model(model, of_layers, setting.stack)
    again = recomputed_flops_per_token(planned, seq_len, causal=False, documents=documents, encoder=encoder)
    part = FORWARD_PART * workload.optimizer.passes_of_a_sequence if workload.optimizer.forward_only else 1.0
    whole *= part
    seen = model_flops_per_token(model, seq_len, causal=True, documents=documents, encoder=encoder)
    return {
        "mfu": rate * whole,
        "mfu_causal": rate * part * seen,
        "hfu": rate * (whole + again) * shares_per_replica(plan.synchronise),
    }


def _joules(step_s: float, setting: Setting) -> float | None:
    pool = setting.cluster.pool
    if pool.device.power_w is None:
        return None
    return pool.device.power_w * setting.cluster.devices * step_s


def _origins(estimate: Estimate, setting: Setting, error: StepError) -> dict[str, str]:
    pool = setting.cluster.pool
    price = pool.usd_per_device_hour
    copies = (
        "predicted: bytes over the host link's nominal rate times host_link_efficiency; no measured run with offload "
        "stands beside it"
    )
    offload = {"breakdown_s.offload": copies} if OFFLOAD in estimate.parts else {}
    given = {"constants": setting.given.text} if setting.given else {}
    kernels_origin = _kernels_origin(setting.cluster, setting.given)
    rounds = {} if estimate.rounds is None else {"synchronise": estimate.rounds.origin}
    return (
        offload
        | rounds
        | {
            "step_time_s": f"predicted: {estimate.method}; kernel constants {kernels_origin}",
            **given,
            "step_time_low_s": error.origin,
            "step_time_high_s": error.origin,
            "fits_probability": memory_origin(),
            "memory_bytes": "predicted: ledger of tensors; the worst pipeline rank's, others under stages; "
            + memory_origin(),
            "mfu": _mfu_origin(setting),
            "usd_per_hour": "null: no price known" if price is None else f"{price.source} ({price.date})",
            "joules_per_step": "null: board power unknown"
            if pool.device.power_w is None
            else "upper bound: board power limit × devices × step time; hosts and network not included",
        }
    )


def _mfu_origin(setting: Setting) -> str:
    counted = "6·N_active + 12·layers·heads·head_dim·seq"
    if setting.workload.optimizer.forward_only:
        counted = "two forward passes: 4·N_active + 8·layers·heads·head_dim·seq"
    return f"{counted} per token over the dense peak; docs/metrics.md"


def _kernels_origin(cluster: Cluster, given: GivenConstants | None) -> str:
    """Return the origin of the kernel constants, and the names that the cluster's file overrides.

    Those that were ``given`` have an origin of their own.
    """
    device = cluster.pool.device.id
    kernel = kernels(device)
    others = {parts_of_name(name)[2] for name, _ in given.values} if given else set[str]()
    own = [
        name for name in dict(cluster.calibration) if name in KERNEL_NUMBERS or name.startswith("attention_")
    ]
    known = [name for name in own if name not in others]
    whose = "measured" if kernel.measured else f"not measured on {device}; those of {kernel.family} stand in"
    if len(known) < len(own):
        whose += ", but for those given by name"
    if not known:
        return f"{whose} ({kernel.origin})"
    rest = "" if kernel.measured else f"; for others those of {kernel.family} stand in"
    return f"{', '.join(known)} from the cluster's calibration{rest} ({kernel.origin})"
