"""Compare plans by ranges of layers with the best plans with one layout, on models of the zoo.

``python benchmarks/layer_search.py --write`` makes ``layer-search.md``.
"""

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import date
from multiprocessing import get_context
from pathlib import Path

from meshwright import __version__
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan, WorkloadSpec
from meshwright.plans.layers.layout_by_layer import format_layout_ranges
from meshwright.plans.layers.recompute_by_layer import format_layer_recomputes, layer_recomputes
from meshwright.verbs.plan.layers.range_answer import Layers
from meshwright.verbs.plan.plan_on_cluster import PlanAnswer, PlanRequest, answer, setting_of

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "search" / "layers"))
from decision_tree import strategies

PAGE = Path(__file__).with_name("layer-search.md")
STACK = "meshwright"
QUESTIONS = (
    ("llama-3.2-1b", "a100-sxm-40gb x 8", 4096, 64),
    ("llama-3.1-8b", "h100-sxm-80gb x 8", 4096, 64),
    ("llama-3.1-8b", "h100-sxm-80gb x 16", 4096, 64),
    ("llama-3.1-8b", "a100-sxm-40gb x 16", 4096, 64),
    ("llama-3.1-8b", "a100-sxm-40gb x 8", 8192, 32),
    ("llama-2-13b", "a100-sxm-40gb x 32", 4096, 128),
    ("llama-3.1-70b", "h100-sxm-80gb x 64", 4096, 256),
    ("llama-3.1-70b", "a100-sxm-80gb x 128", 4096, 512),
    ("gemma-2-9b", "h100-sxm-80gb x 16", 4096, 64),
    ("gemma-3-27b", "h100-sxm-80gb x 32", 4096, 128),
    ("gpt-oss-20b", "h100-sxm-80gb x 16", 4096, 128),
    ("mixtral-8x7b", "h100-sxm-80gb x 64", 4096, 512),
    ("deepseek-v2-lite", "h100-sxm-80gb x 16", 4096, 256),
    ("llama-3.1-405b", "h100-sxm-80gb x 16384", 8192, 2048),
)
"""Model, cluster, sequence length and global batch."""
NOTABLE = 0.03


@dataclass(frozen=True)
class Compared:
    """The answers to a question by ranges and with one layout, with the CPU seconds of each."""

    question: tuple[str, str, int, int]
    by_ranges: PlanAnswer
    uniform: PlanAnswer
    ranges_cpu_s: float
    uniform_cpu_s: float

    @property
    def gain(self) -> float:
        """By which part of its step the best plan by ranges is quicker; negative where it is slower."""
        assert self.by_ranges.ranges is not None
        return self.by_ranges.ranges.gain or 0.0


def compared(question: tuple[str, str, int, int]) -> Compared:
    """Ask a question in both ways, each in a process that knows nothing yet; the fastest plans count."""
    found = {}
    for layers in ("uniform", "ranges"):
        with ProcessPoolExecutor(1, mp_context=get_context("fork")) as fresh:
            found[layers] = fresh.submit(_answered, question, layers).result()
    (uniform, uniform_s), (by_ranges, ranges_s) = found["uniform"], found["ranges"]
    return Compared(question, by_ranges, uniform, ranges_s, uniform_s)


def _answered(question: tuple[str, str, int, int], layers: Layers) -> tuple[PlanAnswer, float]:
    """Return the answer, and its CPU seconds."""
    model, cluster, seq_len, batch = question
    workload = WorkloadSpec(seq_len=seq_len, global_batch=batch)
    header = ShortPlan(plan=1, model=model, cluster=cluster, workload=workload, stack=STACK)
    setting = setting_of(header)
    began = time.process_time()
    found = answer(PlanRequest(header, layers=layers, recommend="fastest"), setting)
    return found, time.process_time() - began


def words_of(plan: LongPlan, layers: int) -> str:
    """Return the ranges of a plan in words, with its pipeline."""
    again = layer_recomputes(plan, layers)
    text = format_layout_ranges(plan) if len(plan.layouts) > 1 else ""
    text += f" recompute {format_layer_recomputes(again)}" if set(again) != {"none"} else ""
    stages = "" if plan.pipeline.stages == "balanced" else ", stages cut anew"
    ranks = plan.pipeline.ranks
    return (text.strip() or "one layout") + (f"; pp {ranks} {plan.choice}{stages}" if ranks > 1 else "")


def row(one: Compared) -> str:
    """Return a row of the table."""
    ranges, (model, cluster, seq_len, batch) = one.by_ranges.ranges, one.question
    assert ranges is not None
    uniform_s = one.uniform.fastest.report.step_time_s
    best = ranges.search.plans[0] if ranges.search.plans else None
    step = "none quicker" if best is None or one.gain <= 0 else f"{best.step_s:.3f} s"
    gain = f"{one.gain:+.1%}" if one.gain > 0 else "–"
    gap = f"{1 - ranges.search.bound_s / min(uniform_s, best.step_s if best else uniform_s):.1%}"
    searched = f"{ranges.search.searched} of {ranges.search.pipelines}"
    seconds = f"{one.ranges_cpu_s - one.uniform_cpu_s:.1f} after {one.uniform_cpu_s:.1f}"
    return (
        f"| {model} on {cluster}, {batch:,} × {seq_len:,} | {uniform_s:.3f} s | {step} | {gain} | {gap} "
        f"| {searched} | {seconds} |"
    )


def details(one: Compared) -> str:
    """Return what the best plan by ranges is, and the best one with one layout."""
    ranges = one.by_ranges.ranges
    if ranges is None or not ranges.search.plans or one.gain <= 0:
        return ""
    plan = ranges.search.plans[0].plan
    model, cluster, _, _ = one.question
    parts = {name: seconds for name, seconds in one.uniform.fastest.report.breakdown_s.items() if seconds}
    uniform = one.uniform.fastest.plan
    layout = {k: v for k, v in uniform.layout.model_dump(exclude_defaults=True).items() if isinstance(v, int)}
    described = " ".join(
        f"{axis} {degree}" for axis, degree in layout.items() if degree > 1 and axis != "sequence_parallel"
    )
    rest = f"{uniform.sharding}, recompute {format_layer_recomputes((uniform.recompute,))}"
    most = max(parts, key=lambda name: parts[name] if name != "compute" else 0.0)
    return (
        f"- **{model} on {cluster}** ({one.gain:+.1%}): {words_of(plan, setting_layers(one))}. "
        f"One layout: {described}, {rest}, {uniform.pipeline.choice} ×{uniform.pipeline.virtual_stages}; besides "
        f"compute its largest part is {most}, {parts[most] / sum(parts.values()):.1%}.\n"
    )


def setting_layers(one: Compared) -> int:
    """Return the layers of a question's model."""
    model, cluster, seq_len, batch = one.question
    workload = WorkloadSpec(seq_len=seq_len, global_batch=batch)
    header = ShortPlan(plan=1, model=model, cluster=cluster, workload=workload, stack=STACK)
    return setting_of(header).model.architecture.layers


def page(found: list[Compared]) -> str:
    """Return the page."""
    notable = [one for one in found if one.gain > NOTABLE]
    better = [one for one in found if one.gain > 0]
    counts = [len(strategies(8, pruned=False)), len(strategies(8)), len(strategies(8, recompute=True))]
    return f"""# Plans by ranges of layers

By version {__version__} on {date.today()} with `python benchmarks/layer_search.py --write`.
Every question is asked of the `{STACK}` stack, which can run layouts by range, for the fastest plan: once with one
layout for all layers, once by ranges. All times are predicted by closed forms, none is measured.

"gain": by which part of its step the best plan by ranges is quicker than the best one with one layout. "gap": the part
of the better one's step by which another plan by ranges could be quicker still, by a lower bound of the costs of single
blocks. "CPU s": of the search by ranges, after that with one layout.
"pipelines": those that were searched, of all (pipeline ranks, stages per rank, sequences that move together).
Plans with one layout may have activations on the hosts, which plans by ranges are not searched with.

| question | one layout | by ranges | gain | gap | pipelines | CPU s |
|---|--:|--:|--:|--:|--:|--:|
{chr(10).join(map(row, found))}

Of {len(found)} questions plans by ranges are quicker in {len(better)}, by more than {NOTABLE:.0%} in {len(notable)}.

## Quicker plans

{"".join(map(details, found)) or "None is quicker."}
## Strategies of a layer

The decision tree of Galvatron (arXiv 2211.13878) has {counts[0]} strategies on 8 devices, {counts[1]} once pruned and
{counts[2]} with checkpointing: the counts of the paper. The search here takes the leaves in one order of ranks (tp, cp,
dp_shard, dp_replicate), with ZeRO levels, gathers, context and expert parallelism besides, and keeps those that are the
cheapest at some price of memory.
"""


def main() -> None:
    """Print the page, or write it."""
    found = []
    for question in QUESTIONS:
        found.append(compared(question))
        print(row(found[-1]), file=sys.stderr, flush=True)
    text = page(found)
    if "--write" in sys.argv:
        PAGE.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
