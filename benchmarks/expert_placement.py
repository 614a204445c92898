"""Orders of experts: what they save of copies between nodes and of the busiest rank's rows, counted on other tokens.

    python benchmarks/expert_placement.py [--write]    a few minutes; --write keeps benchmarks/expert-placement.md

Made-up routers: popularity falls as i^-s (Zipf), experts are in clusters, a token prefers one of them by ``preference``
logits, and chooses by Gumbel noise. Pairs are counted of one half of the tokens, the order is judged by the other half.
A trained one: a small model with experts learns bytes of a text of the examples, and its run's own pairs place them.
"""

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright import __version__, api
from meshwright.cluster.load import load_cluster
from meshwright.model.load import load_model
from meshwright.placement.expert_order.problem import Task
from meshwright.placement.expert_order.solve import ExpertPlacement, solve_expert_order
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortLayout, ShortPlan, WorkloadSpec
from meshwright.plans.setting import Setting
from meshwright.stack.load import load_stack
from meshwright.verbs.plan.expert_placement import expert_task
from meshwright.workload.expert_counts_file import read_counts_or_pairs
from meshwright.workload.expert_routing import Pairs, Routing
from meshwright.workload.workload import Workload

Floats = NDArray[np.float64]
TOKENS, SEED, STEPS = 2000, 0, 60
TEXT = Path(__file__).parents[1] / "examples" / "persuasion-volume-one.txt"
SMALL = {
    "model_type": "qwen3_moe",
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "max_position_embeddings": 256,
}
HEAD = (
    "| model | ep, nodes | routers | copies to other nodes | by the formula | busiest rank | "
    "layer | gap | CPU s |\n|---|--:|---|--:|--:|--:|--:|--:|--:|"
)


@dataclass(frozen=True)
class Place:
    """A model on a cluster with experts over ep ranks of so many in a node."""

    model: str
    devices: int
    ep: int
    per_node: int


PLACES = (
    Place("mixtral-8x7b", 32, 4, 2),
    Place("qwen3-30b-a3b", 64, 32, 8),
    Place("deepseek-v3", 512, 64, 8),
)
ROUTERS = ((0.5, 0.0), (0.5, 2.0), (0.5, 4.0))
"""Zipf's exponent and the preference."""


def drawn(rng: np.random.Generator, experts: int, chosen: int, skew: float, preference: float) -> Floats:
    """Choices of one layer: (2·tokens, experts), ones and zeros."""
    popularity = rng.permutation(np.arange(1, experts + 1) ** -skew)
    cluster = rng.permutation(np.arange(experts) % max(2, experts // 32))
    preferred = rng.integers(cluster.max() + 1, size=2 * TOKENS)[:, None] == cluster
    value = np.log(popularity) + preference * preferred + rng.gumbel(size=(2 * TOKENS, experts))
    made = np.zeros(value.shape)
    np.put_along_axis(made, np.argpartition(-value, chosen, axis=1)[:, :chosen], 1, 1)
    return made


def pairs_of(made: list[Floats]) -> Pairs:
    """How often tokens chose both of two experts."""
    return Pairs(made[0].shape[1], np.stack([layer.T @ layer for layer in made]).tobytes())


def task_of(place: Place, said: Pairs) -> Task:
    """The question of a stack that sends a token once to a node."""
    graph = load_model(place.model)
    cluster = load_cluster(f"h100-sxm-80gb x {place.devices}")
    pool = replace(cluster.pool, node=replace(cluster.pool.node, scaleup_domain=place.per_node))
    workload = WorkloadSpec(seq_len=4096, global_batch=place.devices)
    layout = ShortLayout(dp_shard=place.devices, ep=place.ep)
    names = {"plan": 1, "model": place.model, "cluster": cluster.name, "stack": "generic"}
    short = ShortPlan(workload=workload, layout=layout, sharding="zero1", **names)
    work = Workload(seq_len=4096, global_batch=place.devices, routing=Routing(said))
    stack = replace(load_stack("generic"), deduplicates_exchange=True)
    setting = Setting.of(graph, replace(cluster, pools=(pool,)), work, stack)
    task = expert_task(short, expand(short, graph.architecture), setting)
    assert task is not None
    return task


def crossing(made: list[Floats], orders: NDArray[np.int64], nodes: int) -> float:
    """Copies of a token to nodes that it is not at home on, homes anywhere."""
    met = [
        (layer[:, order].reshape(len(layer), nodes, -1).sum(2) > 0).sum(1).mean()
        for layer, order in zip(made, orders, strict=True)
    ]
    return float(np.mean(met)) * (1 - 1 / nodes)


def busiest(made: list[Floats], orders: NDArray[np.int64], ranks: int) -> float:
    """Rows of the busiest rank over the mean rank's."""
    loads = [layer.sum(0)[order].reshape(ranks, -1).sum(1) for layer, order in zip(made, orders, strict=True)]
    return float(np.mean([load.max() / load.mean() for load in loads]))


def arrow(before: float, after: float) -> str:
    """Two numbers, and by how much the second is less."""
    return f"{before:.2f} → {after:.2f} ({after / before - 1:+.0%})"


def rows() -> Iterator[str]:
    """A row for every place and form of routers."""
    for place in PLACES:
        moe = load_model(place.model).architecture.moe
        assert moe is not None
        for skew, preference in ROUTERS:
            rng = np.random.default_rng(SEED)
            layers = range(sum(moe.layers))
            made = [drawn(rng, moe.experts, moe.experts_per_token, skew, preference) for _ in layers]
            counted, others = (
                [layer[part] for layer in made] for part in (slice(TOKENS), slice(TOKENS, None))
            )
            task = task_of(place, pairs_of(counted))
            began = time.process_time()
            found = solve_expert_order(task, SEED)
            seconds = time.process_time() - began
            yield row(place, f"s {skew:g}, preference {preference:g}", task, found, others, seconds)


def row(
    place: Place, routers: str, task: Task, found: ExpertPlacement, others: list[Floats], seconds: float
) -> str:
    """A line of the table."""
    numbered, across = task.as_numbered, 1 - 1 / task.nodes
    sent = arrow(crossing(others, numbered, task.nodes), crossing(others, found.orders, task.nodes))
    told = arrow(*(float(of.nodes.mean()) * across for of in (found.as_numbered, found.meeting)))
    rank = arrow(busiest(others, numbered, task.ranks), busiest(others, found.orders, task.ranks))
    layer = arrow(*(1e3 * float(of.mean()) for of in (found.as_numbered_s, found.seconds)))
    known = "exact" if found.exact else f"{found.gap:.1%}"
    return (
        f"| {place.model} | {task.ranks}, {task.nodes} | {routers} | {sent} | {told} | {rank} | {layer} ms | {known} | "
        f"{seconds:.1f} |"
    )


def trained_row(folder: Path) -> str:
    """The small model's line, by the pairs of its own run: two choices, of which the formula is exact."""
    (folder / "config.json").write_text(json.dumps(SMALL), encoding="utf-8")
    plan = {
        "plan": 1,
        "model": "config.json",
        "cluster": "h100-sxm-80gb x 1",
        "workload": {"seq_len": 128, "global_batch": 8},
        "stack": "meshwright",
        "layout": {},
    }
    (folder / "plan.yaml").write_text(json.dumps(plan), encoding="utf-8")
    options = {"steps": STEPS, "data": (str(TEXT),), "output": folder / "out", "lr": 3e-3, "warmup_steps": 10}
    api.run(folder / "plan.yaml", options=options)
    said = read_counts_or_pairs(folder / "out" / "routing-pairs.csv", "pairs")
    assert isinstance(said, Pairs)
    place = Place(str(folder / "config.json"), 32, 8, 2)
    task = task_of(place, said)
    found = solve_expert_order(task, SEED)
    across = 1 - 1 / task.nodes
    sent = arrow(*(float(of.nodes.mean()) * across for of in (found.as_numbered, found.meeting)))
    rank = arrow(*(float(of.busiest.mean()) for of in (found.as_numbered, found.meeting)))
    known = "exact" if found.exact else f"{found.gap:.1%}"
    return f"| small, trained | {task.ranks}, {task.nodes} | its own | {sent} | the same | {rank} | | {known} | |"


def page(text: str) -> str:
    """The page that is kept under ``benchmarks/``."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    return f"""# Orders of experts

Which experts [placement](../docs/placement.md#experts) puts on one rank and one node, for a stack that sends a token
once to a node, by version {__version__} on {date.today().isoformat()} ({machine}; other work ran beside it). Routers
are made up but for the last: popularity falls as i^-s, a token prefers one cluster of experts by so many logits.
Pairs are counted of {TOKENS} tokens a layer. Copies to other nodes and rows of the busiest rank are counted of
{TOKENS} others, each the model's order → the order that was found; "by the formula" is what the pairs make of the
copies, and "layer" a routed layer's passes over a micro-batch, both predicted. "gap" is what a layer's time may still
be above the best order's, by a bound.

{text}

The small model ({SMALL["num_experts"]} experts, {SMALL["num_experts_per_tok"]} chosen) learnt {STEPS} steps of
`examples/{TEXT.name}`; its routers are judged on the tokens that were counted, and drift.

Without preference there is nothing to put together: the order evens out load, and what it saves of copies is little
or noise. ExFlow (arXiv 2401.08383) tells of up to 67 % less routing between GPUs. That is another setting: inference,
tokens that stay where their last expert is, experts placed by what was chosen in the layer before. Here tokens go
home behind every layer, and it is experts of one layer that belong together.

Made by `python benchmarks/expert_placement.py --write`.
"""


def main() -> None:
    """Print the table; ``--write`` keeps it."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for line in chain(rows(), map(trained_row, [Path(folder)])):
            print(line, flush=True)
            lines.append(line)
    if "--write" in sys.argv[1:]:
        text = page("\n".join([HEAD, *lines]))
        (Path(__file__).parent / "expert-placement.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
