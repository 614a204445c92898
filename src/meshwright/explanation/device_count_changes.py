"""Predict the plan on fewer or more devices, with fewer or more data-parallel replicas and the same global batch."""

from collections.abc import Iterator
from dataclasses import replace

from meshwright.explanation.cluster_resources import Resource
from meshwright.explanation.plan_difference import ExplainedPlan, legal_plan
from meshwright.explanation.prediction_parts import prediction_parts
from meshwright.explanation.workload_tipping_points import FACTORS, RescaledPlan
from meshwright.plans.forms.short import ShortLayout, ShortPlan
from meshwright.plans.setting import Setting
from meshwright.verbs.predict.predict_plan import estimated


def changed_device_counts(subject: ExplainedPlan) -> Iterator[RescaledPlan]:
    """Yield the plan on other numbers of devices. Nothing for plans without a short form or with unequal links."""
    short, cluster = subject.short, subject.setting.cluster
    if short is None or cluster.links is not None or short.layout.node_order is not None:
        return
    counts = Resource("devices", "devices", cluster.devices, "devices", lambda f: _on_more(subject, f))
    for factor in sorted(FACTORS):
        layout = _with_replicas(short, factor)
        if layout is None:
            continue
        setting = counts.scaled(factor)
        plan = legal_plan(
            short.model_copy(update={"layout": layout}), subject.stages, setting, subject.recomputes
        )
        if isinstance(plan, str):
            yield RescaledPlan(counts, factor, setting, None, plan)
        else:
            yield RescaledPlan(counts, factor, setting, prediction_parts(estimated(plan), setting))


def _on_more(subject: ExplainedPlan, factor: float) -> Setting:
    cluster = subject.setting.cluster
    pool = replace(cluster.pool, count=int(cluster.pool.count * factor))
    return replace(subject.setting, cluster=replace(cluster, pools=(pool,)))


def _with_replicas(short: ShortPlan, factor: float) -> ShortLayout | None:
    """Return the layout with ``factor`` times the replicas; None where that is no whole number."""
    layout = short.layout
    sharded = layout.dp_shard > 1 or (layout.dp_replicate == 1 and short.sharding != "none")
    axis = "dp_shard" if sharded else "dp_replicate"
    degree = getattr(layout, axis) * factor
    return layout.model_copy(update={axis: int(degree)}) if degree.is_integer() else None
