"""Rules on ``node_order``: every node once, full nodes only, and a cluster whose links differ."""

from collections.abc import Iterator

from meshwright.cluster.fast_domains import node_count, node_devices
from meshwright.errors import Problem
from meshwright.plans.rules.rule_input import Rule, RuleInput


def node_orders(case: RuleInput) -> Iterator[Problem]:
    """node_order names the nodes of a cluster of equal devices, each once."""
    order = case.layout.node_order
    if order is None or len(case.cluster.pools) != 1:
        return
    field, pool = "layout.node_order", case.cluster.pool
    nodes = node_count(pool)
    if nodes is None:
        rule = f"{pool.count} devices do not fill nodes of {node_devices(pool)}, and only full ones can change places"
        yield Problem(field, list(order), rule, "take node_order out")
    elif sorted(order) != list(range(nodes)):
        rule = f"must name each of the nodes 0 to {nodes - 1} once: {pool.count} devices, {node_devices(pool)} a node"
        yield Problem(field, list(order), rule, "take node_order out, or let `plan` find one")
    elif case.cluster.links is None and not case.cluster.tiers and list(order) != sorted(order):
        rule = "changes nothing: the cluster says of no link that it differs from the others"
        yield Problem(field, list(order), rule, "links or tiers in the cluster file", "warning")


NODE_RULES: tuple[Rule, ...] = (node_orders,)
