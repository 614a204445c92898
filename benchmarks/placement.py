"""Orders of nodes on random links: what they gain over the order as listed, and what the bound leaves.

Run: ``python benchmarks/placement.py [--write]``; a few minutes.
"""

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright import __version__
from meshwright.cluster.cluster import Links
from meshwright.cluster.load import load_cluster
from meshwright.model.load import load_model
from meshwright.placement.node_order.solve import NodePlacement, solve_node_order
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve_with
from meshwright.stack.load import load_stack
from meshwright.verbs.predict.slow_links import placement_task

Floats = NDArray[np.float64]
MODEL, DEVICE, STACK, PER_NODE, STAGES = "llama-3.1-70b", "h100-sxm-80gb", "meshwright", 8, 4
NODES = (4, 6, 8, 16, 32, 64, 128)
HEAD = (
    "| nodes | links | as listed | found | gain | best of all | at most above it | CPU s |\n"
    "|--:|---|--:|--:|--:|---|--:|--:|"
)


def all_different(rng: np.random.Generator, nodes: int) -> Floats:
    """Every pair at 10 to 100 % of the cards."""
    return rng.uniform(0.1, 1.0, (nodes, nodes))


def two_networks(rng: np.random.Generator, nodes: int) -> Floats:
    """Half of the nodes, at random places, with cards of another kind; an eighth of the rate between the kinds."""
    kind = rng.permutation(nodes) < nodes // 2
    return np.where(kind[:, None] == kind[None], 1.0, 0.125)


def racks(rng: np.random.Generator, nodes: int) -> Floats:
    """Four racks with their nodes in mixed order: 90 to 100 % inside one, 30 to 50 % from one to another."""
    rack = rng.permutation(nodes) % 4
    return np.where(
        rack[:, None] == rack[None], rng.uniform(0.9, 1.0, (nodes,) * 2), rng.uniform(0.3, 0.5, (nodes,) * 2)
    )


LINKS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "all different, 0.1 to 1": all_different,
    "two networks": two_networks,
    "four racks": racks,
}


def solved(nodes: int, shares: Floats) -> tuple[NodePlacement, float]:
    """The order of nodes of a plan with four stages and zero1 on all nodes, and the CPU seconds it took."""
    shares = np.minimum(shares, shares.T)
    np.fill_diagonal(shares, 1.0)
    devices = nodes * PER_NODE
    cluster = replace(
        load_cluster(f"{DEVICE} x {devices}"), links=Links(shares=tuple(map(tuple, shares.tolist())))
    )
    stages = STAGES if nodes % STAGES == 0 else 2
    replicas = devices // stages // PER_NODE
    plan = ShortPlan.model_validate(
        {
            "plan": 1,
            "model": MODEL,
            "cluster": cluster.name,
            "stack": STACK,
            "workload": {"seq_len": 8192, "global_batch": 16 * replicas},
            "layout": {"pp": stages, "dp_shard": replicas, "tp": PER_NODE},
            "sharding": "zero1",
        }
    )
    resolved = resolve_with(plan, load_model(MODEL), cluster, load_stack(STACK))
    began = time.process_time()
    task = placement_task(plan, resolved.long, resolved.setting)
    assert task is not None
    return solve_node_order(task), time.process_time() - began


def rows() -> Iterator[str]:
    """A row for every number of nodes and form of links."""
    for nodes in NODES:
        for name, draw in LINKS.items():
            found, seconds = solved(nodes, draw(np.random.default_rng(nodes), nodes))
            known = "yes" if found.exact else "not known"
            before, after = f"{found.as_listed_s:.3f} s", f"{found.step_s:.3f} s"
            yield (
                f"| {nodes} | {name} | {before} | {after} | {found.gained:.1%} | {known} | {found.gap:.1%} | "
                f"{seconds:.1f} |"
            )


def page(text: str) -> str:
    """The page that is kept under ``benchmarks/``."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    return f"""# Orders of nodes

The order that [placement](../docs/placement.md) finds for one plan ({MODEL}, {STAGES} stages or 2, tp {PER_NODE},
zero1 over the rest, 16 micro-batches) on {DEVICE} nodes of {PER_NODE} with random links, by version {__version__} on
{date.today().isoformat()} ({machine}; other work ran beside it). Steps are predicted. "At most above it" is against a
lower bound that treats every kind of groups by itself, so the true distance is smaller. Made by
`python benchmarks/placement.py --write`.

{text}
"""


def main() -> None:
    """Print the table; ``--write`` keeps it."""
    lines = []
    for row in rows():
        print(row, flush=True)
        lines.append(row)
    if "--write" in sys.argv[1:]:
        text = page("\n".join([HEAD, *lines]))
        (Path(__file__).parent / "placement.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
