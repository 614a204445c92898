"""Compare predicted memory with PyTorch's FSDP2 memory tracker, for released models with fake tensors on a CPU.

Run: ``python benchmarks/memory_oracle.py [--write]``; about three minutes. Exits with 1 where a peak differs by more
than 5 %.

Both have the same layout: FSDP2 over 8 ranks times tp, sequences cut over tp, one sequence of at most 4,096 tokens,
bf16 with fp32 shards, AdamW, the second micro-batch of a step. The ledger is that of the stack torchtitan; the loss is
PyTorch's own, not compiled.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Literal

import torch
from tracked_torch.trace import Layout, Traced, trace

from meshwright import __version__
from meshwright.cluster.load import load_cluster
from meshwright.cost.closed_form.evaluate_plans import pipeline_groups
from meshwright.cost.constants import constants
from meshwright.model.architecture import Architecture
from meshwright.model.load import load_model
from meshwright.model.operators.blocks import build_graph
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.forms.short import ShortLayout, ShortPipeline, ShortPlan, WorkloadSpec
from meshwright.plans.resolve import Resolved, resolve_with
from meshwright.stack.load import load_stack
from meshwright.units import GIB
from meshwright.verbs.predict.predict_plan import predicted

PAGE = Path(__file__).with_name("memory-oracle.md")
MODELS = (
    *("llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "llama-2-7b"),
    *("mistral-7b-v0.3", "qwen2.5-7b", "qwen2.5-72b", "qwen3-8b", "qwen3-32b"),
    *("gpt-1.7b", "gpt-7.5b", "gpt-22b", "gpt-3-175b"),
)
RECOMPUTES = ("none", "selective", "full")
TENSOR_DEGREES = (1, 2, 4)
LAYERS, DEEP_LAYERS, SHARDS, LONGEST, LIMIT = 4, 32, 8, 4096, 0.05
"""Every model has its first 4 layers in all combinations; models of up to 32 layers have all of them in one more."""
PARTS = {
    "states": "states_bytes",
    "kept": "kept_bytes",
    "buffers": "buffers_bytes",
    "all but states": "passing_bytes",
    "peak": "peak_bytes",
}
LOGIT_BYTES = {False: 12, True: 16}
"""What PyTorch's cross-entropy holds of a logit at once in fp32, by whether tp cuts the vocabulary: the log-softmax and
the gradients of loss and log-softmax; with ``loss_parallel`` the log-softmax, its exponential, the mask, their sum."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model with its first ``layers`` in a layout."""

    model: str
    layers: int
    recompute: Literal["none", "selective", "full"]
    tp: int

    @property
    def architecture(self) -> Architecture:
        """The model, cut to its first layers, without dropout."""
        arch = load_model(self.model).architecture
        return replace(arch, layers=self.layers, windows=arch.windows[: self.layers], dropout=False)

    @property
    def seq_len(self) -> int:
        """Tokens of a sequence."""
        return min(LONGEST, self.architecture.max_positions)


@dataclass(frozen=True, kw_only=True)
class Line:
    """The two sides of a case."""

    case: Case
    ledger: Traced
    traced: Traced

    def error(self, part: str) -> float:
        """Ledger over tracker, less one."""
        return float(getattr(self.ledger, part) / getattr(self.traced, part) - 1)


def cases() -> Iterator[Case]:
    """Every model in every combination with few layers, and some with all of them."""
    for model in MODELS:
        for what in RECOMPUTES:
            for tp in TENSOR_DEGREES:
                yield Case(model=model, layers=LAYERS, recompute=what, tp=tp)  # type: ignore[arg-type]
    deep = [model for model in MODELS if load_model(model).architecture.layers <= DEEP_LAYERS]
    for number, model in enumerate(deep):
        layers, what = load_model(model).architecture.layers, RECOMPUTES[number % 3]
        yield Case(model=model, layers=layers, recompute=what, tp=TENSOR_DEGREES[number // 3 % 3])  # type: ignore[arg-type]


def compared(case: Case) -> Line:
    """Trace a case, and predict it."""
    layout = Layout(dp=SHARDS, tp=case.tp, recompute=case.recompute, seq_len=case.seq_len)
    return Line(case=case, ledger=of_ledger(case), traced=trace(case.architecture, layout))


def of_ledger(case: Case) -> Traced:
    """Return the ledger of a case in the tracker's parts; the workspace of a context and libraries has no tensors."""
    arch, cluster = case.architecture, f"h100-sxm-80gb x {SHARDS * case.tp}"
    plan = ShortPlan(
        plan=1,
        model=case.model,
        cluster=cluster,
        workload=WorkloadSpec(seq_len=case.seq_len, global_batch=2 * SHARDS),
        stack="torchtitan",
        layout=ShortLayout(dp_shard=SHARDS, tp=case.tp),
        sharding="zero3",
        gather="per-layer",
        recompute=case.recompute,
        pipeline=ShortPipeline(),
    )
    stack = replace(load_stack("torchtitan"), logit_bytes=LOGIT_BYTES[case.tp > 1])
    resolved = resolve_with(plan, build_graph(arch), load_cluster(cluster), stack)
    memory = predicted(resolved).memory_bytes
    return Traced(
        states_bytes=memory["parameters"] + memory["gradients"] + memory["optimizer"],
        kept_bytes=int(kept(resolved)) - stack.logit_bytes * arch.vocab * case.seq_len // case.tp,
        buffers_bytes=memory["buffers"],
        peak_bytes=memory["total"] - memory["workspace"],
    )


def kept(resolved: Resolved) -> float:
    """Return the bytes that all blocks keep from the forward pass, logits included."""
    assert resolved.short is not None
    ((_, group),) = pipeline_groups(from_shorts([resolved.short]), resolved.setting)
    return float(group.kept.sum())


def table(lines: Sequence[Line]) -> str:
    """The cases in Markdown."""
    names = " | ".join(f"{name} GiB, ledger | tracker | error" for name in PARTS)
    head = f"| model | layers | recompute | tp | {names} |\n|---|--:|---|" + "--:|" * (1 + 3 * len(PARTS))
    return "\n".join((head, *map(_row, lines)))


def _row(line: Line) -> str:
    case, cells = line.case, list[str]()
    for part in PARTS.values():
        cells += [f"{getattr(side, part) / GIB:.2f}" for side in (line.ledger, line.traced)]
        cells.append(f"{line.error(part):+.1%}")
    return f"| {case.model} | {case.layers} | {case.recompute} | {case.tp} | {' | '.join(cells)} |"


def summary(lines: Sequence[Line]) -> str:
    """Mean absolute and largest error of each part, by recomputation."""
    names = " | ".join(f"{name}, mean | largest" for name in PARTS)
    rows = [f"| recompute | cases | {names} |", "|---|" + "--:|" * (1 + 2 * len(PARTS))]
    for what in (*RECOMPUTES, "all"):
        mine = [line for line in lines if what in (line.case.recompute, "all")]
        cells = []
        for part in PARTS.values():
            errors = [line.error(part) for line in mine]
            cells += [f"{sum(map(abs, errors)) / len(errors):.1%}", f"{max(errors, key=abs):+.1%}"]
        rows.append(f"| {what} | {len(mine)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def page(lines: Sequence[Line]) -> str:
    """The page."""
    worst = max((line.error("peak_bytes") for line in lines), key=abs)
    models, torch_release = len({line.case.model for line in lines}), torch.__version__.split("+")[0]
    workspace = constants()["workspace_bytes"] / GIB
    in_file = load_stack("torchtitan").logit_bytes
    loss = f"{LOGIT_BYTES[False]} bytes of a logit at once, {LOGIT_BYTES[True]} with `loss_parallel`"
    return f"""# Predicted memory against PyTorch's memory tracker

Meshwright {__version__}, {date.today()}; `python benchmarks/memory_oracle.py --write`. Nothing is fitted.

The peaks of {len(lines)} cases ({models} released models) differ by {worst:+.1%} at most. The tracker is
`FSDPMemTracker` of PyTorch {torch_release}; it counts every tensor of rank 0 while one micro-batch runs with fake
tensors in a fake process group. The ledger is that of `stack: torchtitan`, `sharding: zero3`, `gather: per-layer`.

| | both sides |
|---|---|
| layout | FSDP2 over {SHARDS} ranks, times tp with sequences cut over tp; a sequence of {LONGEST:,} tokens or fewer |
| numbers | fp32 shards of parameters, bf16 while gathered, gradients reduced in fp32; AdamW |
| time | the second micro-batch of a step: sharded gradients and moments are there |
| kernels | flash attention; RMSNorm, SwiGLU and rotary positions fused, as on CUDA or compiled; no dropout |
| loss | `cross_entropy` of fp32 logits, whole: {loss} |
| recomputation | full: `checkpoint` around each layer; selective: torchtitan's policy |

Kept: what all blocks keep from the forward pass, without logits. Buffers: gathered parameters, gradients before they
are reduced, and messages, at the peak. The ledger ignores gradients of activations; where the backward pass of a layer
is the peak, its buffers have all gradients of the layer already. Where two moments hold about as much, each side may
name another one, so that buffers differ and peaks do not. The workspace of the ledger has no tensors and is left out
({workspace:.1f} GiB). The file of the stack says {in_file} bytes of a logit, as for other stacks;
torchtitan's own configurations compute the loss in chunks, which the ledger does not know.

{summary(lines)}

## Cases

{table(lines)}
"""


def main() -> int:
    """Print the page, write it where asked to; return 1 where a peak is off."""
    lines = [compared(case) for case in cases()]
    text = page(lines)
    print(text)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
    return int(any(abs(line.error("peak_bytes")) > LIMIT for line in lines))


if __name__ == "__main__":
    sys.exit(main())
