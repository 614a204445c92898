"""Laws on edges: caches go from pools that prefill to pools that decode, and each of them has an edge.

Requests of one written token are prefill alone: their caches go nowhere, and no pool needs an edge.
"""

from collections.abc import Iterator

from meshwright.errors import Problem, nearest
from meshwright.plans.serving.rules.serving_rule_input import ServingRule, ServingRuleInput
from meshwright.plans.serving.serving_plan import Does, HandOver, Pool


def ends_of_edges(case: ServingRuleInput) -> Iterator[Problem]:
    """Require edges from pools that prefill to pools that decode, each of them once."""
    seen: set[HandOver] = set()
    for place, edge in enumerate(case.plan.edges):
        if edge in seen:
            yield Problem(f"edges.{place}", _text(edge), "stands there twice", "take it out")
        seen.add(edge)
        yield from _end(case, f"edges.{place}.from", edge.source, "prefill")
        yield from _end(case, f"edges.{place}.to", edge.target, "decode")


def _end(case: ServingRuleInput, field: str, name: str, does: Does) -> Iterator[Problem]:
    pools = case.plan.pools
    known = [pool.name for pool in pools.values() if pool.does == does]
    if name not in pools:
        yield Problem(field, name, "is no pool of the plan", nearest(name, pools))
    elif pools[name].does == "serve":
        rule = f"pool {name} serves: it keeps the caches that it fills, and has no edges"
        yield Problem(field, name, rule, f"take the edge out, or pools.{name}.does: {does}")
    elif name not in known:
        rule = f"pool {name} does {pools[name].does}, and caches go from prefill to decode"
        yield Problem(field, name, rule, nearest(name, known) or f"a pool with does: {does}")


def pools_with_edges(case: ServingRuleInput) -> Iterator[Problem]:
    """Require an edge from each pool that prefills, and one to each pool that decodes."""
    if case.plan.workload.lengths.prefill_only:
        return
    sources = {edge.source for edge in case.plan.edges}
    targets = {edge.target for edge in case.plan.edges}
    for name, pool in case.plan.pools.items():
        if pool.does == "prefill" and name not in sources:
            yield _lonely(case, pool, "decode", "hands its caches to no pool")
        if pool.does == "decode" and name not in targets:
            yield _lonely(case, pool, "prefill", "gets caches from no pool")


def _lonely(case: ServingRuleInput, pool: Pool, does: Does, rule: str) -> Problem:
    """Return the problem of a pool without an edge, with the edge to write."""
    other = next((one.name for one in case.plan.pools.values() if one.does == does), None)
    field = f"pools.{pool.name}.does"
    if other is None:
        hint = f"does: serve, or a second pool with does: {does} and an edge"
        return Problem(field, pool.does, f"{rule}: no pool does {does}", hint)
    ends = (pool.name, other) if does == "decode" else (other, pool.name)
    return Problem(field, pool.does, rule, f"edges: [{_text(HandOver(*ends))}]")


def _text(edge: HandOver) -> str:
    return f"{{from: {edge.source}, to: {edge.target}, carry: {edge.carry}}}"


HAND_OVER_RULES: tuple[ServingRule, ...] = (ends_of_edges, pools_with_edges)
