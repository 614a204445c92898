"""Pools, nodes, tiers and links of a cluster's description as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from meshwright.present.console import plain_table
from meshwright.present.description_values import print_facts, print_rows, print_table, value_text

MAX_NODES = 12
"""Nodes whose links are printed as a matrix."""


def print_pools(out: Console, pools: Sequence[Mapping[str, Any]]) -> None:
    """Print what a pool's devices are, and below it what their nodes are."""
    print_facts(out, "pools", [_device_facts(pool) for pool in pools])
    print_facts(out, "nodes", [pool["node"] for pool in pools])


def _device_facts(pool: Mapping[str, Any]) -> dict[str, Any]:
    facts = {key: value for key, value in pool.items() if key != "node"}
    price = facts["usd_per_device_hour"]
    if price is not None:
        origin = ", ".join(filter(None, (price["source"], price["date"])))
        facts["usd_per_device_hour"] = f"{value_text(price['value'])} ({origin})"
    return facts


def print_tiers(out: Console, tiers: Sequence[Mapping[str, Any]]) -> None:
    """Print the levels of the network above the node, one a line."""
    if tiers:
        print_rows(out, "tiers", tiers)


def print_links(out: Console, links: Mapping[str, Any] | None) -> None:
    """Print the rates between nodes, with a matrix of their shares where nodes are few."""
    if links is None:
        return
    print_facts(out, "links", [{key: value for key, value in links.items() if key != "relative"}])
    shares = links["relative"]
    if len(shares) > MAX_NODES:
        out.print(f"  relative: {len(shares)} × {len(shares)} shares of the cards' rate (--json has them)")
        return
    table = plain_table("  relative, from node", *map(str, range(len(shares))))
    for node, row in enumerate(shares):
        table.add_row(f"  {node}", *(f"{share:.3g}" for share in row))
    print_table(out, table)
