"""The files of a probe job for our own runtime: a script that trains on synthetic data and prints its steps."""

from collections.abc import Mapping

from meshwright.errors import UnsupportedError
from meshwright.launchers.job_nodes import host_order
from meshwright.launchers.launch_script import node_rank_lines
from meshwright.plans.resolve import Resolved
from meshwright.plans.rules.stack_limits.meshwright import unsupported_by_runtime
from meshwright.stack.stack import OWN_STACK

PORT = 29500
BEGIN_ANEW = (
    "# What an earlier start of this job left would be taken for this one's.",
    'rm -rf -- "${JOB}/run"',
)


def own_files(resolved: Resolved) -> Mapping[str, str]:
    """``meshwright/launch.sh`` for a job folder with its ``plan.yaml``. Raises UnsupportedError for what is not run."""
    problems = [
        p for p in unsupported_by_runtime(resolved.long, resolved.setting.model) if p.severity == "error"
    ]
    if problems:
        raise UnsupportedError(problems)
    return {f"{OWN_STACK}/launch.sh": _script(resolved)}


def _script(resolved: Resolved) -> str:
    cluster = resolved.setting.cluster
    per_node = min(cluster.pool.node.devices, cluster.devices)
    nodes = -(-cluster.devices // per_node)
    order = host_order(resolved.long, cluster)
    start = "meshwright" if nodes == 1 else _torchrun(nodes, per_node, order)
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            "# Trains on synthetic data and ends by printing the metrics of every step, which `ingest` reads.",
            "set -euo pipefail",
            'JOB="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"',
            *(BEGIN_ANEW if nodes == 1 else ()),
            *([] if order is None else node_rank_lines(order)),
            f'{start} run "${{JOB}}/plan.yaml" --steps "${{TRAIN_STEPS:-20}}" --resume never \\',
            '  --out "${JOB}/run" "$@"',
            'cat "${JOB}/run/metrics.jsonl"',
            "",
        ]
    )


def _torchrun(nodes: int, per_node: int, order: tuple[int, ...] | None) -> str:
    first = "${MASTER_ADDR:?the first host}"
    meeting = f'--rdzv-backend c10d \\\n  --rdzv-endpoint "{first}:{PORT}"'
    if order is not None:
        meeting = f'--node-rank "${{NODE_RANK}}" \\\n  --master-addr "{first}" --master-port {PORT}'
    return f"torchrun --nnodes {nodes} --nproc-per-node {per_node} {meeting} --no-python meshwright"
