"""Suggest a global batch near the given one that lets another number of devices train at a lower cost per token."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, floor, inf

from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.objectives import Objective
from meshwright.search.space.legal_plans import divisors
from meshwright.verbs.plan.clusters.batch_choice import BatchRange
from meshwright.verbs.plan.clusters.best_plan import best_plan
from meshwright.verbs.plan.clusters.candidate_cluster import CandidateCluster
from meshwright.verbs.plan.clusters.cluster_bounds import bound_clusters
from meshwright.verbs.plan.clusters.cluster_request import question_on

NEAR = 0.125
"""The part of the batch by which another may differ."""
SIZES = 0.8, 1.25
"""The least and the most devices, relative to those of the chosen cluster."""
WORTH_A_WORD = 0.01
"""The gain from which the answer names the other batch."""


def nearby_batch_remark(
    chosen: CandidateCluster, contenders: Sequence[CandidateCluster], aim: Objective, limits: Limits
) -> str | None:
    """Name a batch near the given one that opens a better count of devices; None where none does by much.

    Compared are the fastest plans: of the chosen cluster, and of the other batch with the least bound.
    """
    batch, fastest_s = chosen.setting.workload.global_batch, chosen.found.fastest_s
    near = BatchRange(ceil(batch * (1 - NEAR)), floor(batch * (1 + NEAR)))
    others = list(_others(chosen, contenders, near))
    now = None if fastest_s is None else aim.measure(_of_batch(chosen, batch).course, fastest_s)
    if now is None or not others:
        return None
    bounds = bound_clusters([(one.scope, one.setting) for one in others])
    values = [_value(aim, one, found.least_s) for one, found in zip(others, bounds, strict=True)]
    best = min(range(len(others)), key=values.__getitem__)
    other = others[best]
    worth, least_s = now * (1 - WORTH_A_WORD), bounds[best].least_s
    if least_s is None or not bounds[best].known or values[best] >= worth:
        return None
    # Values grow with the step at least in proportion, so a longer step than this is worse than what is worth a word.
    plan = best_plan(other.scope, other.setting, least_s * worth / values[best], bounds[best])
    value = inf if plan is None else _value(aim, other, plan.step_s)
    if plan is None or value > worth or not limits.met(other.course.costs(plan.step_s)):
        return None
    return (
        f"global batch {other.setting.workload.global_batch} in place of {batch} opens {other.offer.on}, whose fastest "
        f"plan is {1 - value / now:.1%} better per token ({aim.summary}): --batch-range {near.low}..{near.high}"
    )


def _others(
    chosen: CandidateCluster, contenders: Sequence[CandidateCluster], near: BatchRange
) -> Iterator[CandidateCluster]:
    """Yield the clusters of about the same size with each batch that fits degrees of theirs."""
    batch, devices = chosen.setting.workload.global_batch, chosen.setting.cluster.devices
    for one in contenders:
        size = one.setting.cluster.devices
        if one.family != chosen.family or not SIZES[0] * devices <= size <= SIZES[1] * devices:
            continue
        multiples = {near.high - near.high % part for part in divisors(size) if part <= near.high}
        for other in sorted(multiples):
            if other >= near.low and other != batch:
                yield _of_batch(one, other, batch)


def _of_batch(one: CandidateCluster, batch: int, sequences: int | None = None) -> CandidateCluster:
    """Return the cluster with another batch; costs are of so many sequences where tokens are unknown."""
    setting = replace(one.setting, workload=replace(one.setting.workload, global_batch=batch))
    course = replace(one.course, setting=setting, sequences=sequences or batch)
    return CandidateCluster(one.offer, question_on(one.question, one.offer, batch), course, one.scope)


def _value(aim: Objective, one: CandidateCluster, step_s: float | None) -> float:
    value = None if step_s is None else aim.measure(one.course, step_s)
    return inf if value is None else value
