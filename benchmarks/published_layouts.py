"""Simulate two published layouts, YUAN 2.0's and PanGu-α's, beside plans searched for the same devices and batch.

    python benchmarks/published_layouts.py            prints the page
    python benchmarks/published_layouts.py --write    also writes it to benchmarks/published-layouts.md

Models and cluster are in ``benchmarks/published-layouts``; each file names where its figures come from.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from meshwright import __version__
from meshwright.explanation.plan_comparison import compare_plans
from meshwright.plans.forms.long import LayerRule, LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.layer_assignment import balanced_counts, stage_layers
from meshwright.plans.layers.layout_by_layer import format_layout_ranges
from meshwright.plans.layers.recompute_by_layer import format_layer_recomputes, layer_recomputes
from meshwright.plans.layers.uneven_partition import written_stages
from meshwright.plans.resolve import Resolved, resolve
from meshwright.simulate.plan_estimate import simulated_estimate
from meshwright.units import GIB
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer

HERE = Path(__file__).parent
PAGE, FILES = HERE / "published-layouts.md", HERE / "published-layouts"
STACK = "meshwright"
ON_DEVICES = "offload=none"
"""Neither system keeps activations on hosts, so no plan here does."""
YUAN_STAGES = (*[2] * 10, *[3] * 20, 2, 2)
YUAN_RECOMPUTED = 2
"""Layers of each stage that run again, its first ones."""


@dataclass(frozen=True)
class Published:
    """A published layout: ``layout`` as in a plan file, ``kept`` its choices as a search has them."""

    title: str
    model: str
    cluster: str
    seq_len: int
    global_batch: int
    layout: dict[str, int]
    recompute: str
    kept: tuple[str, ...]

    @property
    def header(self) -> ShortPlan:
        """Return the question that the layout answers."""
        workload = {"seq_len": self.seq_len, "global_batch": self.global_batch}
        data = {"plan": 1, "model": str(FILES / self.model), "cluster": self.cluster, "stack": STACK}
        return ShortPlan.model_validate({**data, "workload": workload})

    @property
    def plan(self) -> ShortPlan:
        """Return the layout with equal stages and one recomputation for all layers."""
        choices: dict[str, Any] = {"layout": self.layout, "sharding": "zero1", "recompute": self.recompute}
        pipeline = {"schedule": "1f1b", "micro_batch": 1}
        return ShortPlan.model_validate({**self.header.to_data(), **choices, "pipeline": pipeline})


YUAN = Published(
    title="YUAN 2.0, 102.6 billion parameters (arXiv 2311.15786)",
    model="yuan-2.0-102b.json",
    cluster="a100-sxm-80gb x 256",
    seq_len=4096,
    global_batch=1152,
    layout={"pp": 32, "dp_shard": 8},
    recompute="full",
    kept=("tp=1", "pp=32", "cp=1", "recompute=full", "virtual_stages=1", "sharding=zero1"),
)
PANGU = Published(
    title="PanGu-α, 207 billion parameters (arXiv 2104.12369)",
    model="pangu-alpha-200b.json",
    cluster=str(FILES / "ascend-910-2048.yaml"),
    seq_len=1024,
    global_batch=2048,
    layout={"tp": 8, "pp": 16, "dp_shard": 16},
    recompute="full",
    kept=("tp=8", "pp=16", "dp_shard=16", "recompute=full", "virtual_stages=1", "sharding=zero1"),
)


@dataclass(frozen=True)
class Row:
    """A plan, simulated: seconds of its step, and bytes of the fullest device of each pipeline rank."""

    name: str
    plan: Resolved
    step_s: float
    rank_bytes: tuple[int, ...]

    @classmethod
    def of(cls, name: str, plan: ShortPlan | LongPlan) -> "Row":
        """Simulate a plan."""
        resolved = resolve(plan)
        found = simulated_estimate(resolved.long, resolved.setting)
        return cls(name, resolved, sum(found.parts.values()), tuple(sum(of.values()) for of in found.ledgers))

    @property
    def words(self) -> str:
        """Return layout, stages and recomputation in a few words."""
        long, layers = self.plan.long, self.plan.setting.model.architecture.layers
        counts = [stage.count for stage in stage_layers(long.pipeline, layers)]
        equal = tuple(counts) == balanced_counts(layers, len(counts))
        own = "" if equal else f"stages of {stage_words(counts)} layers, "
        again = set(layer_recomputes(long, layers))
        ran = format_layer_recomputes(layer_recomputes(long, layers)) if len(again) == 1 else "by layer"
        return f"{format_layout_ranges(long)}; pp {long.pipeline.ranks} {long.choice}, {own}recompute {ran}"


def stage_words(counts: Sequence[int]) -> str:
    """Return the layers of stages in words, equal ones in a row together."""
    runs = [(count, len(list(run))) for count, run in groupby(counts)]
    return ", ".join(f"{count}" if times == 1 else f"{times} × {count}" for count, times in runs)


def with_first_layers_recomputed(short: ShortPlan, counts: Sequence[int], again: int) -> LongPlan:
    """Return a plan with stages of so many layers, of which the first ``again`` of each run again."""
    long = resolve(short).long
    (layout,) = long.layouts
    rules = {"embed": LayerRule(layout=layout), "head": LayerRule(layout=layout)}
    for count, end in zip(counts, np.cumsum(counts).tolist(), strict=True):
        for layer in range(end - count, end):
            recompute = "full" if layer < end - count + again else "none"
            rules[str(layer)] = LayerRule(layout=layout, recompute=recompute)
    pipeline = long.pipeline.model_copy(update={"stages": written_stages(counts)})
    return long.model_copy(update={"layers": rules, "pipeline": pipeline})


def kept_fastest(published: Published, *keep: str, **more: Any) -> tuple[ShortPlan | LongPlan, float]:
    """Return the fastest plan with some choices fixed, and its predicted step in seconds."""
    request = PlanRequest(
        published.header, keep=(ON_DEVICES, *keep), top=1, recommend="fastest", **{"layers": "uniform"} | more
    )
    best = answer(request).fastest
    return best.long or best.plan, best.report.step_time_s


def ranged(published: Published) -> ShortPlan | LongPlan | None:
    """Return the quickest plan by ranges of layers; None where there is none."""
    request = PlanRequest(published.header, keep=(ON_DEVICES,), layers="ranges", recommend="fastest")
    ranges = answer(request).ranges
    if ranges is None or ranges.fastest is None:
        return None
    return ranges.fastest.long or ranges.fastest.plan


def yuan_rows() -> list[Row]:
    """Simulate YUAN 2.0's stages, equal ones, those cut by memory and by time, and the searched plans."""
    published = [
        Row.of("as published", with_first_layers_recomputed(YUAN.plan, YUAN_STAGES, YUAN_RECOMPUTED)),
        Row.of(
            "equal stages",
            with_first_layers_recomputed(YUAN.plan, balanced_counts(84, 32), YUAN_RECOMPUTED),
        ),
    ]
    layout = ("pp=32", "dp_shard=8", "micro_batch=1", "sharding=zero1", "virtual_stages=1")
    for name, stages, keep in (
        ("all layers run again, stages by memory", "memory", (*layout, "recompute=full")),
        ("recomputation left open, stages by time", "time", layout),
    ):
        published.append(Row.of(name, kept_fastest(YUAN, *keep, stages=stages)[0]))
    return [*published, *searched_rows(YUAN)]


def searched_rows(published: Published) -> list[Row]:
    """Simulate the best plan with one layout, and the best one by ranges of layers."""
    rows = [Row.of("searched, one layout", kept_fastest(published)[0])]
    by_ranges = ranged(published)
    return rows if by_ranges is None else [*rows, Row.of("searched, by ranges of layers", by_ranges)]


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each plan."""
    yield "| plan | layout | step, s | against the published | GiB, fullest rank | GiB, leanest rank |"
    yield "|---|---|--:|--:|--:|--:|"
    first = rows[0].step_s
    for row in rows:
        most, least = max(row.rank_bytes) / GIB, min(row.rank_bytes) / GIB
        against = f"{row.step_s / first - 1:+.1%}"
        yield f"| {row.name} | {row.words} | {row.step_s:.2f} | {against} | {most:.1f} | {least:.1f} |"


def stage_sentences(rows: Sequence[Row]) -> str:
    """Return what stages cut by memory save, and cost."""
    published, equal, leanest, mixed = rows[:4]

    def against(row: Row) -> str:
        most, other = max(row.rank_bytes) / GIB, max(equal.rank_bytes) / GIB
        change = row.step_s / equal.step_s - 1
        return f"{most:.1f} GiB in place of {other:.1f}, step {change:+.1%}"

    return f"""
Simulated memory of the fullest rank and step time, against equal stages with the published recomputation:

- the published stages: {against(published)}
- stages that we balance by memory, all layers run again: {against(leanest)}
- stages balanced by time, recomputation chosen by the search: {against(mixed)}
"""


def memory_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the memory of every pipeline rank."""
    yield "\nGiB of each pipeline rank, the first one first:\n"
    for row in rows:
        yield f"- {row.name}: {', '.join(f'{held / GIB:.1f}' for held in row.rank_bytes)}"


def choices(published: Published) -> Iterator[str]:
    """Yield what each published choice costs where a search may choose all others."""
    free = kept_fastest(published)[1]
    yield "\n| published choice | best plan with it, s | slower |"
    yield "|---|--:|--:|"
    for keep in published.kept:
        seconds = kept_fastest(published, keep)[1]
        yield f"| `{keep}` | {seconds:.2f} | {seconds / free - 1:+.1%} |"
    together = kept_fastest(published, *published.kept)[1]
    yield f"| all of them | {together:.2f} | {together / free - 1:+.1%} |"


def reasons(rows: Sequence[Row]) -> Iterator[str]:
    """Yield why the searched plans differ, in the words of ``explain``."""
    published, *_ = rows
    for row in (row for row in rows if row.name.startswith("searched")):
        found = compare_plans(published.plan, row.plan, row.name)
        yield f"\n**{row.name}, against the published layout.** {' '.join(found.summary)}\n"
        yield from (f"- {line}" for line in found.lines)


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield f"""# Published layouts

YUAN 2.0 cuts its stages by memory, and PanGu-α spreads its model over five dimensions. Here both layouts are
simulated beside plans that `meshwright plan` finds for the same devices and batch, of the `{STACK}` stack and with
everything on the devices. All times and bytes are computed, by version {__version__} on {date.today()} with
`python benchmarks/published_layouts.py --write`; nothing is measured, and no figure of the papers is reproduced.
Tables of layouts have simulated steps, tables of choices those of closed forms.

## {YUAN.title}
"""
    rows = yuan_rows()
    yield from table(rows)
    yield """
Published: 84 layers, hidden size 8192, 64 heads; 32 pipeline ranks of 2 (ten times), 3 (twenty times), 2 and 2
layers, of which the first 2 of each run again; no tensor parallelism, micro-batches of 1, a batch of 1,152 sequences
of 4,096 tokens, distributed optimizer, bf16 (`examples/pretrain_yuan2.0_102B.sh` of IEIT-Yuan/Yuan-2.0). Not stated
there, and assumed: 256 A100 of 80 GB, so 8 replicas; 18 bytes of states for each parameter, of which the optimizer's
12 are sharded. The two convolutions of localized filtering count as columns of the MLP. The logits are whole, which
YUAN 2.0's block-wise cross entropy avoids: our last rank holds more than theirs."""
    yield stage_sentences(rows)
    yield from memory_lines(rows)
    yield from choices(YUAN)
    yield from reasons(rows)
    yield f"\n## {PANGU.title}\n"
    rows = [Row.of("as published", PANGU.plan), *searched_rows(PANGU)]
    yield from table(rows)
    yield """
Published: 2,048 Ascend 910; 8 ranks of tensor, 16 of pipeline and 16 of data parallelism, optimizer parallelism (here
`zero1`), rematerialisation (here `full`); 64 layers, hidden size 16384, 128 heads, 1,024 tokens. Not stated in the
sources that we have, and assumed: a batch of 2,048 sequences, micro-batches of 1, 1F1B with equal stages; bf16 in
place of fp16, which has as many bytes. The query layer counts as an ordinary one. Figures of the device are in
[`ascend-910-2048.yaml`](published-layouts/ascend-910-2048.yaml). The cost model has no measured kernels of it: its
times are good for comparisons at most."""
    yield from memory_lines(rows)
    yield from choices(PANGU)
    yield from reasons(rows)


def main() -> None:
    """Print the page, or write it."""
    text = "\n".join(page()) + "\n"
    if "--write" in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
