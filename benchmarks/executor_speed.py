"""How much more CPU time our executor takes than hand-written PyTorch in the same layout.

    python benchmarks/executor_speed.py                     prints the table
    python benchmarks/executor_speed.py --write             also writes benchmarks/executor-speed.md
    python benchmarks/executor_speed.py --only DDP FSDP2    some layouts

Both train the same decoder from the same weights on the same tokens, in the same processes, one step of one after one
step of the other. The figure is the sum of the CPU seconds (user and system, all threads) of all ranks: on a shared
machine it is steadier than wall clock, and it does not count waiting.
"""

import argparse
import gc
import os
import platform
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from executor_cases import SIZES, Size, micro_batches, program_of, ranks_of
from plain_torch.layouts import LAYOUTS, Step, Task

from meshwright import __version__
from meshwright.runtime.executor.operator_call import MicroBatch
from meshwright.runtime.executor.rank import Job, Rank, rank_of
from meshwright.runtime.launch.forked_ranks import run_locally
from meshwright.runtime.launch.launcher_environment import Place
from meshwright.runtime.state.step_options import StepOptions
from meshwright.runtime.weights.random_tensors import random_tensors

PAIRS, WARM_UP = 31, 3
RESAMPLES, SEED = 10_000, 0
TARGET = 1.05
EQUAL = 1e-4
LIMIT_S = 1200.0


SETTING = {
    "version": __version__,
    "resamples": RESAMPLES,
    "target": TARGET,
    "warm_up": WARM_UP,
    "equal": EQUAL,
    "size": SIZES[0],
}
PAGE = """# Executor speed compared with hand-written PyTorch

CPU seconds of a training step (user and system, all threads, summed over ranks), ours over theirs: the median over
pairs of steps, and its 95 % upper bound by bootstrap ({resamples:,} resamples of the pairs). {within} of {bounds}
bounds are at most {target}. Measured by version {version} on {day} with PyTorch {torch}, fp32, one thread per rank,
gloo ({machine}; load average {before:.1f} before, {after:.1f} after). Made by
`python benchmarks/executor_speed.py --write`.

| layout | hidden | ranks | micro-batches | pairs | PyTorch, CPU s | ours, CPU s | ratio | 95 % upper bound |
|---|--:|--:|--:|--:|--:|--:|--:|--:|
{rows}

Both run in the same processes, one step of one after one step of the other, the order changing from pair to pair, after
{warm_up} steps each of which losses and norms of gradients are equal (relative difference below {equal:g}; the largest
here is {difference:.0e}). The model is a decoder of Llama's shape: {size.layers} layers, two query heads of
{size.head_dim} for each key-value head, SwiGLU, vocabulary {size.vocab:,}. A micro-batch is a sequence of
{size.seq_len} tokens; their number is that of a replica.

What stands beside us is in `benchmarks/plain_torch`, always with products on one input fused,
`scaled_dot_product_attention` (the CPU's flash kernel, which knows grouped heads), fused AdamW, and clipping by the
global norm:

- **one process**: the usual loop over micro-batches.
- **DDP**: `DistributedDataParallel`, gradients as views of its buckets, `no_sync` in all but the last micro-batch.
- **ZeRO-1**: by hand. Parameters and gradients are views of flat buffers; reduce-scatter, a step on one half,
  all-gather.
- **FSDP2**: `fully_shard` of the embedding, of each block, and of norm with head, freed after use in both passes and
  reduced in every micro-batch, as ours with `gather: per-layer`: the same number of gathers and reductions.
- **TP**, **TP and SP**: by hand, as Megatron-LM: column- and row-cut products as autograd functions, exchanges beside
  the products of the backward pass, embedding, head and loss cut over the vocabulary.
- **1F1B**: `PipelineStage` and `Schedule1F1B`, shapes given; two stages with the same layers as ours.

It says nothing of accelerators, where the host's work hides behind the device's.
"""


@dataclass(frozen=True)
class Comparison:
    """CPU seconds of both, summed over ranks, pair by pair; loss and norm of the first steps of both."""

    layout: str
    size: Size
    plain_s: np.ndarray
    ours_s: np.ndarray
    plain_results: Sequence[tuple[float, float]]
    our_results: Sequence[tuple[float, float]]

    @property
    def difference(self) -> float:
        """The largest relative difference between what both computed."""
        pairs = zip(sum(self.plain_results, ()), sum(self.our_results, ()), strict=True)
        return max(abs(ours / plain - 1) for plain, ours in pairs)

    @property
    def ratio(self) -> float:
        """The median over pairs of ours by theirs."""
        return float(np.median(self.ours_s / self.plain_s))

    @property
    def bound(self) -> float:
        """The 95 % upper bound of that median, by bootstrap over pairs."""
        ratios = self.ours_s / self.plain_s
        drawn = np.random.default_rng(SEED).choice(ratios, (RESAMPLES, len(ratios)))
        return float(np.quantile(np.median(drawn, axis=1), 0.95))


def compared(layout: str, size: Size, pairs: int = PAIRS) -> Comparison:
    """Run both, turn and turn about, on forked ranks. Raises AssertionError where they compute different numbers."""
    model = size.model()
    job = Job(program_of(layout, size, model), model, "fp32", StepOptions(), accelerated=False)

    def work(place: Place, store: dist.Store, tell: object) -> object:
        warnings.filterwarnings("ignore")  # of PyTorch's own wrappers
        tensors = random_tensors(model, 0, torch.float32)
        with rank_of(job, place, store, tensors) as rank:
            batches = micro_batches(job.program, place.rank, size)
            plain = LAYOUTS[layout](_task(rank, tensors, batches))

            def ours() -> tuple[float, float]:
                result = rank.interpreter.step(batches)
                return result.loss, result.norm

            found = measured((plain, ours), pairs)
            # DDP's reducer must not outlive the process group: its end would wait for gloo's thread, which waits for us
            del plain
            gc.collect()
            return found

    found = run_locally(work, ranks_of(layout), LIMIT_S, lambda what, part: None)
    comparison = Comparison(layout, size, *found)  # type: ignore[misc]
    assert comparison.difference < EQUAL, (layout, comparison.plain_results, comparison.our_results)
    return comparison


def _task(rank: Rank, tensors: Mapping[str, torch.Tensor], batches: Sequence[MicroBatch]) -> Task:
    """The same for hand-written PyTorch; a pipeline's stages have the same layers."""
    stages = rank.job.program.stages_of(rank.plan.pipeline_rank)
    layers = [n for stage in stages for n in stage.layers]
    arch = rank.job.model.architecture
    return Task(arch, tensors, batches, layers, rank.job.options, rank.place.rank, rank.place.ranks)


def measured(steps: Sequence[Step], pairs: int) -> tuple[object, ...]:
    """CPU seconds of each, summed over ranks, turn and turn about; then what the first steps of each computed."""
    results = [[step() for _ in range(WARM_UP)] for step in steps]
    seconds = torch.zeros((pairs, len(steps)), dtype=torch.float64)
    for pair in range(pairs):
        places = range(len(steps))
        for which in places if pair % 2 else reversed(places):
            dist.barrier()
            began = time.process_time()
            steps[which]()
            seconds[pair, which] = time.process_time() - began
    dist.all_reduce(seconds)
    return (*seconds.t().numpy(), *results)


def row(c: Comparison) -> str:
    """One line of the table."""
    plain_s, ours_s = np.median(c.plain_s), np.median(c.ours_s)
    return (
        f"| {c.layout} | {c.size.hidden} | {ranks_of(c.layout)} | {c.size.micro_batches} | {len(c.ours_s)} | "
        f"{plain_s:.3f} | {ours_s:.3f} | {c.ratio:.3f} | {c.bound:.3f} |"
    )


def page(comparisons: Iterable[Comparison]) -> str:
    """The table with its explanation."""
    before = os.getloadavg()[0]
    found = list(comparisons)
    return PAGE.format(
        rows="\n".join(map(row, found)),
        within=sum(c.bound <= TARGET for c in found),
        bounds=len(found),
        difference=max(c.difference for c in found),
        day=date.today().isoformat(),
        before=before,
        after=os.getloadavg()[0],
        torch=torch.__version__,
        machine=f"{os.cpu_count()} cores, {platform.machine()}",
        **SETTING,
    )


def _printed(comparisons: Iterable[Comparison]) -> Iterable[Comparison]:
    for comparison in comparisons:
        print(row(comparison), flush=True)
        yield comparison


def main() -> None:
    """Compare, print, and write the page where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=list(LAYOUTS), choices=list(LAYOUTS), metavar="LAYOUT")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    text = page(_printed(compared(layout, size, options.pairs) for layout in options.only for size in SIZES))
    if options.write:
        (Path(__file__).parent / "executor-speed.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
