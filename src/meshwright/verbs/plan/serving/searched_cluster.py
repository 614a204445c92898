"""The search on clusters of one kind of device, and its candidates as plans in files.

Of several sizes the largest one is searched, with the layouts of all of them; a plan's cluster is the smallest size
that has room for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from math import ceil
from typing import Any

from meshwright.cluster.cluster import Cluster, Device
from meshwright.cluster.shorthand import SOURCE
from meshwright.cost.serving.hardware_times import serving_times_for
from meshwright.cost.serving.replica_pools import ServedModel
from meshwright.economy.cluster_offers import Offer
from meshwright.frameworks.serving.export_limits import FP4
from meshwright.plans.serving.expand_pools import expand_pools
from meshwright.plans.serving.number_formats import KV_FORMATS, WEIGHT_FORMATS, NumberFormats
from meshwright.plans.serving.resolve_serving import ResolvedServing, serving_problems
from meshwright.plans.serving.rules.serving_rule_input import ServingRuleInput
from meshwright.plans.serving.serving_file import (
    BatchingSpec,
    EdgeSpec,
    PoolSpec,
    QuantiseSpec,
    ReplicaLayoutSpec,
    ServingFile,
)
from meshwright.plans.serving.serving_plan import Does
from meshwright.program.serving.storage_formats import WEIGHT_BITS, StorageFormats
from meshwright.search.serving.candidate_table import Goal
from meshwright.stack.serving.serving_stack import load_serving_stack
from meshwright.verbs.plan.serving.engine_rules import engine_rules, pipelines_hand_over
from meshwright.verbs.plan.serving.pools.replica_designs import Family, ReplicaDesigns
from meshwright.verbs.plan.serving.pools.serving_search import (
    FamilyDesigns,
    FoundPlans,
    ServingSpace,
    search_serving,
)
from meshwright.verbs.plan.serving.serving_request import CheckedServingRequest

HAND_OVER = EdgeSpec.model_validate({"from": "prefill", "to": "decode"})


@dataclass(frozen=True, slots=True, eq=False)
class SearchedCluster:
    """Clusters of one kind in ascending size, what was searched on the largest, and what was found."""

    question: CheckedServingRequest
    offers: tuple[Offer, ...]
    space: ServingSpace
    goal: Goal
    found: FoundPlans

    def offer(self, devices: int) -> Offer:
        """Return the smallest cluster that has so many devices, or the only one."""
        return next(one for one in self.offers if one.cluster.devices >= devices)

    def plan(self, row: Any) -> tuple[ServingFile, ResolvedServing]:
        """Return a candidate as a plan's file, and that plan in full."""
        family = self.space.families[row["family"]]
        designs = self.found.designs[row["family"]]
        offer = self.offer(int(row["devices"]))
        tasks: tuple[Does, ...] = ("serve",) if row["second"] < 0 else ("prefill", "decode")
        pools: dict[str, PoolSpec] = {
            does: _pool(row, designs, family, does, fills=does != "prefill") for does in tasks
        }
        given = self.question.workload
        searched = {} if given.rate_per_s is not None else {"concurrency": int(row["concurrency"])}
        file = ServingFile(
            plan=1,
            model=self.question.request.model,
            cluster=offer.on,
            workload=given.model_copy(update=searched),
            stack=family.stack,
            pools=pools,
            edges=(HAND_OVER,) if row["second"] >= 0 else (),
        )
        return file, resolved(file, self.question, offer.cluster)


def resolved(file: ServingFile, question: CheckedServingRequest, cluster: Cluster) -> ResolvedServing:
    """Return a found plan in full, with the prices that are asked for; it breaks no law."""
    arch = question.model.architecture
    plan = expand_pools(file, experts=arch.moe is not None)
    problems = tuple(serving_problems(ServingRuleInput(plan, arch, cluster.devices)))
    assert all(problem.severity == "warning" for problem in problems), problems
    return ResolvedServing(plan, question.model, cluster, problems)


def clusters_by_kind(question: CheckedServingRequest) -> Iterator[tuple[Offer, ...]]:
    """Yield the clusters on offer that differ only in size, in ascending size."""
    ordered = sorted(question.offers, key=lambda one: (_kind(one), one.cluster.devices))
    for _, group in groupby(ordered, key=_kind):
        yield tuple(group)


def _kind(offer: Offer) -> tuple[str, ...]:
    pool = offer.cluster.pool
    price = "" if pool.usd_per_device_hour is None else f"{pool.usd_per_device_hour.value!r}"
    if offer.cluster.source != SOURCE:
        return (offer.on, price)
    return (pool.device.id, pool.node.name, price)


def searched_cluster(question: CheckedServingRequest, offers: tuple[Offer, ...]) -> SearchedCluster:
    """Search the largest of clusters of one kind."""
    space, goal = serving_space(question, offers)
    return SearchedCluster(question, offers, space, goal, search_serving(space, goal))


def serving_space(question: CheckedServingRequest, offers: tuple[Offer, ...]) -> tuple[ServingSpace, Goal]:
    """Return what is searched on clusters of one kind, and what ranks it."""
    largest = offers[-1].cluster
    pool = largest.pool
    price = pool.usd_per_device_hour
    goal = Goal(question.objective, 1.0 if price is None else price.value, question.request.rate is not None)
    families = tuple(
        Family(
            stack,
            ServedModel(
                model=question.model,
                times=serving_times_for(pool),
                memory_bytes=pool.device.memory_bytes,
                engine=load_serving_stack(stack),
            ),
            formats,
        )
        for stack in question.stacks
        for formats in searched_formats(question, pool.device)
    )
    sizes = tuple(one.cluster.devices for one in offers)
    space = ServingSpace(
        families=families,
        limits=question.limits,
        devices=largest.devices,
        sizes=sizes,
        top=question.request.top,
        rules={family: engine_rules(family, pool) for family in families},
        no_pipelines=frozenset(stack for stack in question.stacks if not pipelines_hand_over(stack)),
        levels={stack: question.level(stack, pool.device.id) for stack in question.stacks},
    )
    return space, goal


def searched_formats(question: CheckedServingRequest, device: Device) -> tuple[NumberFormats, ...]:
    """Return pairs of formats of weights and caches: the released ones, and smaller ones where allowed.

    Caches in 4 bit are for devices with 4-bit arithmetic.
    """
    arch, allowed = question.model.architecture, question.request.allow_quantise
    released = StorageFormats.of_pool(NumberFormats(), arch)
    weights = [name for name in allowed if name in WEIGHT_FORMATS]
    smaller = [name for name in weights if WEIGHT_BITS[name] < WEIGHT_BITS[released.weights]]
    caches = [
        name
        for name in allowed
        if name in KV_FORMATS and name != "bf16" and (name != FP4 or FP4 in device.peak_flops)
    ]
    pairs = [NumberFormats(weight, kv) for weight in (None, *smaller) for kv in (None, *caches)]
    return tuple(dict.fromkeys(pairs))


def _pool(row: Any, designs: FamilyDesigns, family: Family, does: Does, *, fills: bool) -> PoolSpec:
    """Return a pool as a file has it; ``fills``: its sequences decode."""
    replicas = int(row["second_replicas" if does == "decode" else "first_replicas"])
    own: ReplicaDesigns | None = {"serve": designs.serve, "prefill": designs.prefill}.get(
        does, designs.decode
    )
    assert own is not None
    at = int(row["second" if does == "decode" else "first"])
    degrees = dict(zip(("attention_dp", "tp", "pp", "ep", "etp"), own.degrees[at].tolist(), strict=True))
    if family.served.model.architecture.moe is None:
        degrees = {name: degrees[name] for name in ("attention_dp", "tp", "pp")}
    limit = _max_sequences(row, replicas, degrees["attention_dp"] * degrees["pp"]) if fills else None
    return PoolSpec(
        does=does,
        replicas=replicas,
        layout=ReplicaLayoutSpec(**degrees),
        batching=BatchingSpec(
            chunk_tokens=int(own.chunk_tokens[at]),
            max_sequences=limit,
            kv_fraction=family.served.engine.kv_fraction,
        ),
        quantise=QuantiseSpec(weights=family.formats.weights, kv=family.formats.kv),
        overlap=family.overlap,
        allreduce=family.allreduce,
    )


def _max_sequences(row: Any, replicas: int, batches: int) -> int | None:
    """Return the limit of a candidate; without one, as many as a replica has clients, equally many in each batch."""
    if row["max_sequences"]:
        return int(row["max_sequences"])
    if not row["concurrency"]:
        return None
    return ceil(int(row["concurrency"]) / replicas / batches) * batches
