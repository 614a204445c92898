"""Laws on devices: all pools fit on the cluster, and the phases of a pool share its devices."""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.plans.serving.rules.serving_rule_input import ServingRule, ServingRuleInput
from meshwright.plans.serving.serving_plan import ServingPlan


def devices_of_cluster(case: ServingRuleInput) -> Iterator[Problem]:
    """Require Σ replicas · pp·cp·tp·attention_dp of all pools ≤ devices of the cluster."""
    used, devices = case.plan.devices, case.devices
    if devices is None or used <= devices:
        return
    terms = " + ".join(f"{pool.replicas}·{pool.devices_of_replica}" for pool in case.plan.pools.values())
    rule = f"Σ replicas·devices = {terms} = {used} > {devices} devices of the cluster"
    yield Problem("pools", used, rule, _fewer(case.plan, devices))


def _fewer(plan: ServingPlan, devices: int) -> str:
    """Return replicas of the largest pool that leave the others room; else the devices that all pools need."""
    largest = max(plan.pools.values(), key=lambda pool: pool.devices)
    replicas = (devices - (plan.devices - largest.devices)) // largest.devices_of_replica
    if replicas >= 1:
        return f"pools.{largest.name}.replicas: {replicas}"
    return f"a cluster of {plan.devices} devices, or replicas of fewer devices"


def devices_of_phases(case: ServingRuleInput) -> Iterator[Problem]:
    """Require equal devices of the layouts of a pool's phases: they are the same ones."""
    for name, pool in case.plan.pools.items():
        counts = {phase: layout.devices for phase, layout in pool.layouts.items()}
        if len(set(counts.values())) > 1:
            rule = "phases of a pool run on the same devices: " + " ≠ ".join(
                f"{_product(layout)} of {phase}" for phase, layout in pool.layouts.items()
            )
            hint = "one product for both, such as the degrees of decode in prefill"
            yield Problem(f"pools.{name}.layouts", counts, rule, hint)


def _product(layout: ReplicaLayout) -> str:
    degrees = (layout.pp, layout.cp, layout.tp, layout.attention_dp)
    return f"pp·cp·tp·attention_dp = {'·'.join(map(str, degrees))} = {layout.devices}"


DEVICE_RULES: tuple[ServingRule, ...] = (devices_of_cluster, devices_of_phases)
