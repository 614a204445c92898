"""Rules of engines on layouts of a replica: those of the export, and places on nodes.

A search proposes what ``export`` writes commands for. Sizes of replicas divide a node or are whole nodes, so that
replicas fill nodes without gaps.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.cluster import Pool as DevicePool
from meshwright.errors import Problem
from meshwright.frameworks.serving.engine_facts import EngineFacts, engine_facts
from meshwright.frameworks.serving.export_limits import POOL_RULES, serving_export_problems
from meshwright.model.architecture import Architecture
from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.plans.serving.resolve_serving import ResolvedServing
from meshwright.plans.serving.serving_plan import Pool
from meshwright.search.serving.replica_layouts import NAMES, LayoutRule, Rows
from meshwright.stack.serving.serving_stack import GENERIC_ENGINE, NamedEngine
from meshwright.verbs.plan.serving.pools.replica_designs import Family


def engine_rules(family: Family, devices: DevicePool) -> tuple[LayoutRule, ...]:
    """Return the rules of a family's engine on layouts, and that of nodes."""
    node = devices.node.devices
    rules = [LayoutRule("replicas of that size leave gaps on nodes", partial(_fills_nodes, node))]
    target = NamedEngine.of(family.stack).name
    if target != GENERIC_ENGINE:
        facts = engine_facts(target)
        reason = f"{facts.full_name} does not run the degrees or the number formats"
        rules.append(LayoutRule(reason, partial(_allowed, facts, family)))
    return tuple(rules)


def pipelines_hand_over(stack: str) -> bool:
    """Return whether an engine hands caches over from and to pipelines."""
    target = NamedEngine.of(stack).name
    return target == GENERIC_ENGINE or engine_facts(target).allows("pipelines_hand_over")


def export_problems(resolved: ResolvedServing) -> Iterator[Problem]:
    """Yield what the export to a plan's engine refuses; nothing for an engine that nothing is exported to."""
    target = NamedEngine.of(resolved.plan.stack).name
    if target != GENERIC_ENGINE:
        yield from serving_export_problems(target, resolved)


def _fills_nodes(node: int, rows: Rows, arch: Architecture) -> NDArray[np.bool_]:
    devices = rows["attention_dp"] * rows["tp"] * rows["pp"]
    return (node % devices == 0) | (devices % node == 0)


def _allowed(facts: EngineFacts, family: Family, rows: Rows, arch: Architecture) -> NDArray[np.bool_]:
    columns = (rows[name].tolist() for name in NAMES)
    pools = (
        _pool(ReplicaLayout(adp, tp, pp, 1, ep, etp), family)
        for adp, tp, pp, ep, etp in zip(*columns, strict=True)
    )
    return np.array(
        [not any(problem for rule in POOL_RULES for problem in rule(facts, pool, arch)) for pool in pools],
        dtype=np.bool_,
    )


def _pool(layout: ReplicaLayout, family: Family) -> Pool:
    phases = {"prefill": layout, "decode": layout}
    return Pool(
        "all",
        "serve",
        1,
        phases,  # type: ignore[arg-type]
        formats=family.formats,
        overlap=family.overlap,
        allreduce=family.allreduce,
    )
