"""One row of the answer per cluster: its figures with intervals, sources and the probability that limits hold."""

from typing import Any

import numpy as np

from meshwright.cluster.cluster import Sourced
from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_ranking import RankedCluster
from meshwright.economy.report_with_training_cost import expected_failures
from meshwright.economy.training_draws import OUTSIDE, rate_draws
from meshwright.units import DAY_S

COLUMNS = (
    *("model", "family", "cluster", "devices", "state", "why"),
    *("step_time_s", "step_time_low_s", "step_time_high_s", "days", "days_low", "days_high"),
    *("usd", "usd_low", "usd_high", "kwh_boards", "kwh_site", "kg_co2", "power_kw"),
    *("failures", "spare_nodes", "goodput", "usd_per_device_hour", "price_source", "price_date"),
    *(
        "failures_per_1000_node_days",
        "failures_low",
        "failures_high",
        "failure_events",
        "failure_source",
        "sure",
    ),
)
"""Columns of the table that is handed on."""


def cluster_row(standing: RankedCluster, limits: Limits) -> dict[str, Any]:
    """Return a cluster's figures, JSON-ready; where it is beaten, step, time, money and energy are lower bounds."""
    course, step_s = standing.course, standing.step_s
    cluster = course.setting.cluster
    seconds, usd, kwh = (None, None, None) if step_s is None else standing.point
    price, rate, report = (
        cluster.pool.usd_per_device_hour,
        cluster.failures_per_1000_node_days,
        standing.report,
    )
    costs = None if report is None or step_s is None else course.costs(step_s)
    return {
        "model": course.setting.model.name,
        "family": standing.family,
        "cluster": standing.offer.on,
        "devices": standing.offer.cluster.devices,
        "state": standing.state,
        "why": standing.why,
        "tokens": course.terms.tokens,
        "step_time_s": None if step_s is None else course.slowdown * step_s,
        "step_time_low_s": report and report.step_time_low_s,
        "step_time_high_s": report and report.step_time_high_s,
        "seconds": seconds,
        "days": None if seconds is None else seconds / DAY_S,
        **_ends(standing, "days"),
        "usd": usd,
        **_ends(standing, "usd"),
        "kwh": kwh,
        "kwh_boards": costs and costs.kwh_boards,
        "kwh_site": costs and costs.kwh_site,
        "kg_co2": costs and costs.kg_co2,
        "power_kw": course.power_kw,
        "failures": None if costs is None or step_s is None else expected_failures(course, step_s),
        "spare_nodes": course.spare_nodes,
        "goodput": None if course.outages is None or step_s is None else course.share(step_s),
        **_sourced(price, "usd_per_device_hour", "price"),
        "price_date": price and price.date,
        **_sourced(rate, "failures_per_1000_node_days", "failure"),
        **_rate_ends(standing),
        "failure_events": rate and rate.events,
        "mfu": report and report.mfu,
        "sure": standing.sure(limits),
        "plan": None if standing.plan is None else standing.plan.to_data(),
    }


def family_row(standing: RankedCluster, limits: Limits) -> dict[str, Any]:
    """Return the row of a family's best cluster, with what it misses of the limits."""
    searched = standing.state == "searched"
    over = limits.over(standing.costs_held(limits)) if searched else dict.fromkeys(("days", "usd", "kw"))
    return {"meets": standing.holds(limits), "misses": over} | cluster_row(standing, limits)


def _ends(standing: RankedCluster, name: str) -> dict[str, float | None]:
    low, high = (standing.draws and standing.draws.ends(name)) or (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def _sourced(figure: Sourced | None, name: str, what: str) -> dict[str, Any]:
    return {name: figure and figure.value, f"{what}_source": figure and figure.source}


def _rate_ends(standing: RankedCluster) -> dict[str, float | None]:
    """Return the 80 % interval of the failure rate; None where it was not counted."""
    rate, found = standing.course.setting.cluster.failures_per_1000_node_days, standing.course.outages
    if rate is None or found is None or not rate.events:
        return {"failures_low": None, "failures_high": None}
    low, high = np.quantile(rate.value * rate_draws(found.events, standing.family), (OUTSIDE, 1 - OUTSIDE))
    return {"failures_low": float(low), "failures_high": float(high)}
