"""A Report with its goodput and, for a known number of tokens, its training, with origins."""

from dataclasses import replace
from math import isfinite
from typing import Any

from meshwright.economy.goodput import FailureModel
from meshwright.economy.training_cost import TrainingCost
from meshwright.result import Report
from meshwright.units import DAY_S, HOUR_S

UNKNOWN_RATE = (
    "null: nobody has said how often nodes of this cluster fail; say failures_per_1000_node_days in the cluster file "
    "or with --assume"
)
STUCK = "null: failures come quicker than work gets done"
QUANTITIES = ("days", "device_hours", "usd", "kwh")


def report_with_training_cost(report: Report, course: TrainingCost) -> Report:
    """Return the Report of a plan in the setting of ``course``, with its training's costs."""
    goodput = None if course.outages is None else _goodput(course.outages, report)
    training = None if course.terms.tokens is None else _training(course, report)
    origin = report.origin | {"goodput": _goodput_origin(course)}
    if training is not None:
        origin |= _training_origins(course, training)
    return replace(report, goodput=goodput, training=training, origin=origin)


def _goodput(found: FailureModel, report: Report) -> dict[str, Any]:
    step_s = report.step_time_s
    useful, work_s = found.useful(step_s), found.work_s(step_s)
    running = 1 - found.stopped
    writing = useful * found.write_s / work_s
    return {
        "share": found.share(step_s),
        "useful_tokens_per_s": found.share(step_s) * report.tokens_per_s,
        "lost": {
            "checkpoints": running * writing,
            "failures": max(0.0, running * (1 - useful - writing)),
            "waiting": found.stopped,
        },
        "nodes": found.nodes,
        "mtbf_hours": _finite(found.mtbf_s / HOUR_S),
        "checkpoint_bytes": found.checkpoint_bytes,
        "checkpoint_write_s": found.write_s,
        "checkpoint_every_s": _finite(work_s),
        "restart_s": found.restart_s,
    }


def _training(course: TrainingCost, report: Report) -> dict[str, Any]:
    ends = {
        "value": report.step_time_s,
        "low": report.step_time_low_s,
        "high": report.step_time_high_s,
    }
    costs = {end: None if step_s is None else course.costs(step_s) for end, step_s in ends.items()}
    steps_alone = {end: None if s is None else course.steps * s / DAY_S for end, s in ends.items()}
    return {
        "tokens": course.terms.tokens,
        "steps": course.steps,
        "days_without_failures": steps_alone,
        "failures": _failures(course, report.step_time_s),
    } | {
        name: None
        if getattr(costs["value"], name) is None
        else {end: found and getattr(found, name) for end, found in costs.items()}
        for name in QUANTITIES
    }


def _failures(course: TrainingCost, step_s: float) -> float | None:
    """Return the expected number of failures: none occurs while the job stands still."""
    seconds = course.seconds(step_s)
    if course.outages is None or seconds is None:
        return None
    return seconds * (1 - course.outages.stopped) / course.outages.mtbf_s


def _goodput_origin(course: TrainingCost) -> str:
    if course.outages is None:
        return UNKNOWN_RATE
    of = course.terms.assumed
    every = "best" if of.checkpoint_every_s is None else "given"
    names = ["storage_gbyte_per_s_per_node", "restart_s", "repair_hours", "spare_nodes"]
    return f"predicted: {course.outages.source}; assumed {of.text(*names)}; {every} interval of checkpoints"


def _training_origins(course: TrainingCost, training: dict[str, Any]) -> dict[str, str]:
    pool = course.setting.cluster.pool
    price = pool.usd_per_device_hour
    failures = (
        "without failures, of which no rate is known"
        if course.outages is None
        else "over the share of goodput"
    )
    time = STUCK if training["days"] is None else f"predicted: steps × step time, {failures}"
    usd = "null: no price known; --assume usd_per_device_hour=2.5"
    if price is not None:
        usd = f"all hours of all devices and spare nodes; {price.source} ({price.date or 'undated'})"
    kwh = "null: board power unknown; --assume power_w_per_device=700"
    if pool.device.power_w is not None:
        kwh = "upper bound: board power limit × devices × all hours; hosts and network not included"
    stuck = training["days"] is None
    return {
        "training.days": time,
        "training.device_hours": time,
        "training.usd": STUCK if stuck and price is not None else usd,
        "training.kwh": STUCK if stuck and pool.device.power_w is not None else kwh,
    }


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
