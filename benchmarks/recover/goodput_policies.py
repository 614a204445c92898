"""Policies of recovery at published failure rates, next to the goodput that was published.

Rates: ``src/meshwright/cluster/data/reliability.csv``. Plans and batches are near those of the runs; where nobody has
published them (RSC-1, C4) they are of a model of that size. All that is assumed has its usual value
(``docs/objectives.md``); checkpoints are saved in the background.
"""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from meshwright.economy.recovery_policies import POLICIES
from meshwright.units import format_seconds
from meshwright.verbs.load_plan import load
from meshwright.verbs.predict.training_estimate import report_with_training_estimate


@dataclass(frozen=True)
class Case:
    """A published run or cluster with a plan for it; ``per_1000_node_days`` failures."""

    name: str
    per_1000_node_days: float
    published: str
    model: str
    cluster: str
    layout: str
    seq_len: int
    global_batch: int


CASES = (
    Case(
        "Llama 3 405B, 16,384 H100: 419 interruptions in 54 days",
        3.789,
        "more than 90 % (arXiv 2407.21783)",
        "llama-3.1-405b",
        "h100-sxm-80gb x 16384",
        "dp_replicate: 16, dp_shard: 8, tp: 8, pp: 16",
        8192,
        2048,
    ),
    Case(
        "Meta RSC-1, a job on 16,384 A100",
        6.5,
        "none; a failure each 1.8 hours (arXiv 2410.21680)",
        "llama-3.1-405b",
        "a100-sxm-80gb x 16384",
        "dp_replicate: 16, dp_shard: 8, tp: 8, pp: 16",
        8192,
        2048,
    ),
    Case(
        "OPT-175B, 992 A100: an interruption each 7.5 hours",
        1000 * 24 / 7.5 / 124,
        "59 %, started by hand (glennklockwood.com, job reliability)",
        "gpt-3-175b",
        "a100-sxm-80gb x 992",
        "dp_shard: 124, tp: 8",
        2048,
        992,
    ),
    Case(
        "Alibaba C4, 4,096 GPUs: 40 crashes a month",
        2.6,
        "less than 70 % before C4 (arXiv 2406.04594; not checked again)",
        "gpt-3-175b",
        "h800-sxm-80gb x 4096",
        "dp_replicate: 8, dp_shard: 8, tp: 8, pp: 8",
        2048,
        2048,
    ),
    Case(
        "504 B200: 10 GPU failures in 55 days",
        2.886,
        "none; a restart in 11 minutes",
        "llama-3.1-70b",
        "b200 x 504",
        "dp_replicate: 7, dp_shard: 9, tp: 8",
        8192,
        504,
    ),
)
PLAN = """
plan: 1
model: {model}
cluster: {cluster}
stack: megatron-core
workload: {{seq_len: {seq_len}, global_batch: {global_batch}}}
layout: {{{layout}}}
sharding: zero1
pipeline: {{schedule: 1f1b, micro_batch: 1}}
recompute: full
"""


def goodput(case: Case) -> dict[str, Any]:
    """Return the goodput of a case, as ``predict --json`` has it."""
    with TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.yaml"
        fields = {
            name: getattr(case, name) for name in ("model", "cluster", "seq_len", "global_batch", "layout")
        }
        plan.write_text(PLAN.format(**fields), encoding="utf-8")
        assume = (f"failures_per_1000_node_days={case.per_1000_node_days}", "checkpoint_async=true")
        report = report_with_training_estimate(lambda: load(str(plan)), None, assume)
    assert report.goodput is not None, "its rate of failures is assumed"
    return report.goodput


def row(case: Case, found: dict[str, Any]) -> str:
    """Return a row of the table: each policy's share, with spare nodes and interval of the best."""
    of = {one["policy"]: one for one in found["policies"]}
    shares = [f"{of[policy]['useful_share']:.1%}" if policy in of else "–" for policy in POLICIES]
    best = found["policies"][0]
    choice = f"{best['policy']}, {best['spare_nodes']} spare, every {format_seconds(best['interval_s'])}"
    cells = (case.name, f"{found['mtbf_hours']:.1f} h", *shares, choice, case.published)
    return f"| {' | '.join(cells)} |"


def policies_at_published_rates() -> tuple[str, bool]:
    """Return the section of the page, and whether the best policy beats a person everywhere."""
    found = [goodput(case) for case in CASES]
    rows = "\n".join(map(row, CASES, found))
    text = f"""The share of time that becomes work under each policy of `run --on-fault`, each with its own best
interval and spare nodes, predicted for plans near those of the runs (`benchmarks/recover/goodput_policies.py`). The
best has the least dollars. `shrink` needs replicas with all states on different nodes. What is assumed:
[objectives](../docs/objectives.md).

| run | a failure each | {" | ".join(f"`{policy}`" for policy in POLICIES)} | best | published |
|---|--:|{"--:|" * len(POLICIES)}---|---|
{rows}

Published shares count what is not here: hosts that are looked for, failed restarts, slow periods, and runs that were
stopped because of their loss. Others name a goodput without a rate of failures: AWS HLAT on 4,096 Trainium 98.8 %, with
restarts by hand 77.8 %; Gemini 97 %, before it 85 %."""
    return text, all(one["policies"][0]["policy"] != "stop" for one in found)


if __name__ == "__main__":
    print(*policies_at_published_rates())
