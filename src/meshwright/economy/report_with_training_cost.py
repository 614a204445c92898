"""A Report with its goodput and, for a known number of tokens, its training, with origins."""

from dataclasses import replace
from math import isfinite
from typing import Any

from meshwright.economy.goodput import FailureModel
from meshwright.economy.recovery_policies import recovery_policies
from meshwright.economy.report_with_assumptions import at_assumed_speed
from meshwright.economy.training_cost import WATTS_PER_KW, TrainingCost
from meshwright.economy.training_draws import TrainingDraws
from meshwright.result import Report
from meshwright.units import DAY_S, HOUR_S

UNKNOWN_RATE = (
    "null: nobody has said how often nodes of this cluster fail; say failures_per_1000_node_days in the cluster file "
    "or with --assume"
)
STUCK = "null: failures come quicker than work gets done"
QUANTITIES = ("days", "device_hours", "usd", "kwh", "kwh_boards", "kwh_site", "kg_co2")


def report_with_training_cost(
    report: Report, course: TrainingCost, draws: TrainingDraws, copies: int
) -> Report:
    """Return the Report of a plan in the setting of ``course``, with its training's costs and their intervals.

    ``report`` is at the predicted speed; the result is at the assumed one, if one is assumed. ``copies``: replicas of
    the plan that each hold all states.
    """
    predicted_s, report = report.step_time_s, at_assumed_speed(report, course)
    goodput = None if course.outages is None else _goodput(course, course.outages, report, copies)
    training = None if course.terms.tokens is None else _training(course, predicted_s, report, draws)
    origin = report.origin | {"goodput": _goodput_origin(course)}
    if goodput is not None:
        origin |= {"goodput.policies": _policies_origin(course)}
    if training is not None:
        origin |= _training_origins(course, training)
    return replace(report, goodput=goodput, training=training, origin=origin)


def _goodput(course: TrainingCost, found: FailureModel, report: Report, copies: int) -> dict[str, Any]:
    step_s = report.step_time_s
    useful, work_s = found.useful(step_s), found.work_s(step_s)
    running, pause_s = 1 - found.stopped, found.pause_s(step_s, work_s)
    writing = useful * pause_s / work_s
    policies = recovery_policies(found, course.setting, course.terms.assumed, step_s, copies)
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
        "checkpoint_blocked_s": pause_s,
        "checkpoint_every_s": _finite(work_s),
        "restart_s": found.restart_s,
        "policies": [policy.to_json() for policy in policies],
    }


def _training(
    course: TrainingCost, predicted_s: float, report: Report, draws: TrainingDraws
) -> dict[str, Any]:
    costs = course.costs(predicted_s)
    alone = [course.steps * step_s / DAY_S for step_s in (report.step_time_s, *draws.step_ends)]
    return {
        "tokens": course.terms.tokens,
        "steps": course.steps,
        "days_without_failures": _with_ends(alone[0], (alone[1], alone[2])),
        "failures": expected_failures(course, predicted_s),
        "spare_nodes": course.spare_nodes,
        "power_kw": course.power_kw,
    } | {name: _with_ends(getattr(costs, name), draws.ends(name)) for name in QUANTITIES}


def _with_ends(value: float | None, ends: tuple[float, float] | None) -> dict[str, float | None] | None:
    low, high = ends or (None, None)
    return None if value is None else {"value": value, "low": low, "high": high}


def expected_failures(course: TrainingCost, step_s: float) -> float | None:
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
    spares = f"{course.spare_nodes} spare nodes, " + (
        "the number with the least dollars" if of.spare_nodes is None else "assumed"
    )
    saving = ("checkpoint_async",) if of.checkpoint_async else ()
    assumed = of.text("storage_gbyte_per_s_per_node", "restart_s", "repair_hours", *saving)
    return f"predicted: {course.outages.source}; assumed {assumed}; {spares}; {every} interval of checkpoints"


def _policies_origin(course: TrainingCost) -> str:
    priced = course.setting.cluster.pool.usd_per_device_hour is not None
    order = "least dollars for the work, spare nodes paid for" if priced else "largest useful_share"
    assumed = course.terms.assumed.text("by_hand_hours", "shrink_s", "shared_failures")
    return f"predicted: {order} first; speeds in proportion to nodes; assumed {assumed}"


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
    boards = "null: board power unknown; --assume power_w_per_device=700"
    if pool.device.power_w is not None:
        boards = "upper bound: board power limit × devices × all hours; hosts and network not included"
    site = "null: power of a node unknown; --assume power_kw_per_node=10.2"
    if pool.node.power_w is not None:
        site = (
            f"upper bound: rated power of {pool.node.power_w / WATTS_PER_KW:g} kW × nodes and spare nodes × all hours "
            f"× {course.terms.assumed.text('pue')}"
        )
    kwh, stuck = boards if pool.node.power_w is None else site, training["days"] is None
    co2 = "null: --assume kg_co2_per_kwh=0.4"
    if course.terms.assumed.kg_co2_per_kwh is not None:
        co2 = f"kwh × assumed {course.terms.assumed.text('kg_co2_per_kwh')}"
    powered = pool.node.power_w or pool.device.power_w
    return {
        "training.days": time,
        "training.device_hours": time,
        "training.usd": STUCK if stuck and price is not None else usd,
        "training.kwh": STUCK if stuck and powered is not None else kwh,
        "training.kwh_boards": STUCK if stuck and pool.device.power_w is not None else boards,
        "training.kwh_site": STUCK if stuck and pool.node.power_w is not None else site,
        "training.kg_co2": co2,
    }


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
