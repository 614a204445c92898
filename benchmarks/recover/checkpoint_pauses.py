"""Pauses of training for checkpoints at the set-ups of DataStates-LLM (arXiv 2406.10707), simulated.

Models, nodes and layouts are those of its authors' scripts (github.com/mauryaavinash95/llm-restart-perf,
``submit-job.sh``): tp 4 in a node, a pipeline rank on each node, one micro-batch of 16 sequences of 2,048 tokens,
recomputation, ZeRO-1, a checkpoint after every step. Polaris: nodes of 4 A100-40GB, PCIe 4.0, two cards of 200 Gbit/s,
512 GB of memory (ALCF; general knowledge, not checked again). Steps are predicted for Megatron-DeepSpeed of 2022.

Of the paper only the abstract was read: up to 48 times faster checkpoints than its baselines, and up to 2.2 times
faster training, on up to 180 GPUs. The rates at which the file system took checkpoints are not in it.
"""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from simulated_background_saves import PlayedRun, Run

from meshwright.economy.checkpoint_pause import copies_of_plan, most_rank_bytes
from meshwright.economy.goodput import checkpoint_bytes, job_nodes
from meshwright.units import GIGA
from meshwright.verbs.load_plan import load
from meshwright.verbs.predict.predict_plan import predicted

MODELS = {"llama-3.2-3b": 1, "mistral-7b-v0.1": 2, "llama-2-13b": 4, "llama-30b": 8, "llama-3-70b": 20}
"""Models of the shapes in the scripts (named 3B, 7B, 13B, 33B and 70B there), and their nodes."""
FASTER_CHECKPOINTS, FASTER_TRAINING = 48, 2.2
"""Published, as the most."""
SAME_RATES, SAVES = (1.0, 2.0, 5.0), 40
"""GB/s of a node to storage, the same in both ways of saving; checkpoints that are played."""
CLUSTER = """
name: polaris
pools:
  - count: {devices}
    device: a100-sxm-40gb
    node:
      {{like: dgx-a100-320gb, name: polaris, devices: 4, scaleup_domain: 4, nic_count: 2, nic_gbit_per_s_per_node: 400,
       host_memory_gib: 476}}
"""
PLAN = """
plan: 1
model: {model}
cluster: {cluster}
stack: megatron-deepspeed-2022
workload: {{seq_len: 2048, global_batch: 16}}
layout: {{tp: 4, pp: {nodes}}}
sharding: zero1
pipeline: {{schedule: 1f1b, micro_batch: 16}}
recompute: full
"""


@dataclass(frozen=True)
class SetUp:
    """A model on Polaris, in seconds and bytes. ``passes_s``: forward and backward passes of a step."""

    model: str
    nodes: int
    bytes: float
    rank_bytes: float
    copy_s: float
    passes_s: float
    step_s: float

    @property
    def node_gbyte(self) -> float:
        """Gigabytes of a checkpoint that a node writes."""
        return self.bytes / self.nodes / GIGA

    def faster(self, gbyte_per_s: float, every: int) -> float:
        """Return how many times as long training takes that saves at once; the other is played behind its first save.

        Rates are those of a node.
        """
        write_s = self.node_gbyte / gbyte_per_s
        run, clocks = (
            PlayedRun(Run(self.passes_s, self.step_s - self.passes_s, self.copy_s, write_s, every)),
            [],
        )
        for _ in range(SAVES + 1):
            for _ in range(every):
                run.take_step()
            clocks.append(run.clock)
        return SAVES * (every * self.step_s + write_s) / (clocks[-1] - clocks[0])

    @property
    def at_once_s(self) -> float:
        """Seconds of a checkpoint at once with which training takes 2.2 times as long as one that never waits."""
        return (FASTER_TRAINING - 1) * self.step_s


def set_up(model: str, nodes: int) -> SetUp:
    """Return the set-up of a model, with its predicted step."""
    with TemporaryDirectory() as folder:
        cluster, plan = Path(folder) / "cluster.yaml", Path(folder) / "plan.yaml"
        cluster.write_text(CLUSTER.format(devices=4 * nodes), encoding="utf-8")
        plan.write_text(PLAN.format(model=model, cluster=cluster, nodes=nodes), encoding="utf-8")
        resolved = load(str(plan))
    report, size = predicted(resolved), checkpoint_bytes(resolved.setting)
    copies = copies_of_plan(resolved.setting, size, report)
    assert job_nodes(resolved.setting) == nodes
    return SetUp(
        model=model,
        nodes=nodes,
        bytes=size,
        rank_bytes=most_rank_bytes(size, report),
        copy_s=copies.copy_s,
        passes_s=copies.passes * report.step_time_s,
        step_s=report.step_time_s,
    )


def pauses_at_set_ups() -> tuple[str, bool]:
    """Return the section of the page, and whether no set-up waits for copies."""
    cases = [set_up(*case) for case in MODELS.items()]
    pauses = [max(0.0, of.copy_s - of.passes_s) for of in cases]
    rows = [
        f"| {of.model} | {of.nodes} | {of.bytes / GIGA:,.0f} GB | {of.rank_bytes / GIGA:.1f} GB | {of.copy_s:.2f} s | "
        f"{of.passes_s:.2f} s | {pause:.2f} s | {of.step_s:.2f} s |"
        for of, pause in zip(cases, pauses, strict=True)
    ]
    rates = " | ".join(f"{rate:g} GB/s" for rate in SAME_RATES)
    same = [
        f"| {of.model} | {every} | "
        + " | ".join(f"{of.faster(rate, every):.2f}" for rate in SAME_RATES)
        + " |"
        for of in cases
        for every in (1, 5)
    ]
    needed = [
        f"| {of.model} | {of.at_once_s:.1f} s | {of.node_gbyte / of.at_once_s:.1f} GB/s | "
        f"{of.node_gbyte / of.step_s:.1f} GB/s | {of.at_once_s / of.copy_s:.0f} |"
        for of in cases
    ]
    published = "[arXiv 2406.10707](https://arxiv.org/abs/2406.10707), abstract"
    text = f"""Published ({published}):
up to {FASTER_CHECKPOINTS} times faster checkpoints and up to {FASTER_TRAINING} times faster training on Polaris, a
checkpoint after every step. Simulated with predicted steps; set-ups, sources and what is assumed are in
`benchmarks/recover/checkpoint_pauses.py`. Training waits max(0, copy − F − B) for a checkpoint while the disk keeps up:

| model | nodes | checkpoint | a rank copies | copy | F + B | pause | step |
|---|--:|--:|--:|--:|--:|--:|--:|
{chr(10).join(rows)}

The largest pause is {max(pauses):.2f} s: checkpoints are not {FASTER_CHECKPOINTS} times faster but free, as this counts
no overheads. The rates of the paper's file system are not in its abstract. With the same rate of a node to storage in
both ways, training that saves at once takes at most twice as long; how many times as long it takes:

| model | steps between checkpoints | {rates} |
|---|--:|{"--:|" * len(SAME_RATES)}
{chr(10).join(same)}

So {FASTER_TRAINING} is out of reach unless saving at once writes slower than saving in the background. With these rates
of a node it comes out; if training waited for all copies, checkpoints would be faster by the last column, at most
{max(of.at_once_s / of.copy_s for of in cases):.0f} times:

| model | a checkpoint at once takes | rate at once | rate in the background, at least | writing over copying |
|---|--:|--:|--:|--:|
{chr(10).join(needed)}"""
    return text, not max(pauses)


if __name__ == "__main__":
    print(*pauses_at_set_ups())
