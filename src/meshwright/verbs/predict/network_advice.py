"""Advice to measure the rate of the network cards, where a predicted step depends on it.

Published clusters reach .74 to .90 of their cards where these are the bottleneck, and badly connected ones far less
(``nic_efficiency``). Where a step depends on it and the cluster file does not say it, the prediction names it and
the command of nccl-tests that tells.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meshwright.cost.constants import constants
from meshwright.cost.plan_report import closed_form
from meshwright.cost.uncertainty.seen_runs import scale_of
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.recompute_by_layer import layer_recomputes
from meshwright.plans.setting import Setting
from meshwright.result import Report

NAME = "nic_efficiency"
SLOWER = 0.25
"""A share of the cards' rate that a cluster may well lose against the usual one (an assumption)."""
WORTH_A_WORD = 0.05
"""A lengthening of the step from which the answer names the network."""


def with_network_advice(found: Report, short: ShortPlan, plan: LongPlan, setting: Setting) -> Report:
    """Return the report with advice on the network, if the step depends on it and nobody has measured it."""
    calibration = dict(setting.cluster.calibration)
    if found.interval is None or NAME in calibration or scale_of(setting).nodes == 1:
        return found
    slow = tuple((calibration | {NAME: (1 - SLOWER) * constants()[NAME]}).items())
    slower = replace(setting, cluster=replace(setting.cluster, calibration=slow))
    recomputes = layer_recomputes(plan, setting.model.architecture.layers)
    estimate = closed_form(short, slower, plan.pipeline.stages, recomputes)
    longer = sum(estimate.parts.values()) / found.step_time_s - 1
    if longer < WORTH_A_WORD:
        return found
    return replace(found, interval=_advised(found.interval, longer, setting))


def _advised(interval: Mapping[str, Any], longer: float, setting: Setting) -> dict[str, Any]:
    node = setting.cluster.pool.node
    text = (
        f"Network cards {SLOWER:.0%} slower than usual would make the step {longer:.0%} longer: measure them with "
        f"`all_reduce_perf -b 1M -e 8G -f 2 -g {node.devices}` over all nodes and read its output with "
        "`meshwright measure --collective-tests FILE --on CLUSTER`."
    )
    return {**interval, "advice": " ".join(filter(None, (interval["advice"], text)))}
