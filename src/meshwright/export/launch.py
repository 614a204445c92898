"""Shell text that every target shares: torchrun on each node, and a Slurm job that starts it.

One task per node; torchrun starts one process per device and the nodes meet at a c10d rendezvous. Values that
belong to a site (addresses, paths, numbers of steps) are shell variables with defaults.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from meshwright import __version__
from meshwright.cluster.graph import Cluster, Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Where the processes run. ``devices_per_node`` processes on each of ``nodes`` nodes, one on each ``device``."""

    name: str
    nodes: int
    devices_per_node: int
    device: Device


def job_for(cluster: Cluster, name: str) -> Job:
    """The nodes of a cluster with one pool; a pool smaller than a node is a part of one node."""
    pool = cluster.pool
    count, per_node = pool.count, pool.node.devices
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name)
    nodes = max(1, count // per_node)
    return Job(name=plain, nodes=nodes, devices_per_node=min(count, per_node), device=pool.device)


def header(target: str, release: str, summary: str, *remarks: str) -> str:
    """The comment at the top of a file: tool, target, the plan in a line."""
    lines = [f"meshwright {__version__} for {target} {release}", summary, *remarks]
    return "\n".join(f"# {line}".rstrip() for line in lines)


def torchrun(job: Job, program: Sequence[str]) -> str:
    """The torchrun command for one node, one option a line. ``program`` is shell text, already quoted."""
    options = [
        '--nnodes "${NNODES}"',
        f"--nproc-per-node {job.devices_per_node}",
        "--rdzv-backend c10d",
        '--rdzv-endpoint "${MASTER_ADDR}:${MASTER_PORT}"',
        '--rdzv-id "${RDZV_ID}"',
    ]
    return " \\\n  ".join(["exec torchrun", *options, *program])


def launch_script(top: str, job: Job, body: Sequence[str], sources: Sequence[str] = ("args.sh",)) -> str:
    """``launch.sh``: run on every node; a lone node needs no variable. ``sources``: files beside it, read first."""
    start = [
        "#!/usr/bin/env bash",
        top,
        "set -euo pipefail",
        'HERE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"',
        *(f'source "${{HERE}}/{name}"' for name in sources),
        "",
        "# Where the nodes meet; job.sbatch sets these.",
        f'NNODES="${{NNODES:-{job.nodes}}}"',
        'MASTER_ADDR="${MASTER_ADDR:-localhost}"',
        'MASTER_PORT="${MASTER_PORT:-29500}"',
        'RDZV_ID="${RDZV_ID:-0}"',
        "",
    ]
    return "\n".join([*start, *body, ""])


def sbatch_script(top: str, job: Job, arguments: str = "") -> str:
    """``job.sbatch``: one task per node, each running ``launch.sh``. Submit it from its own folder.

    ``arguments`` is shell text behind ``launch.sh``: ``"$@"`` hands on what the job was submitted with.
    """
    lines = [
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name={shlex.quote(job.name)}",
        f"#SBATCH --nodes={job.nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={job.devices_per_node}",
        "#SBATCH --exclusive",
        top,
        "# Submit from the folder of this file: Slurm runs a copy of it elsewhere.",
        "set -euo pipefail",
        'EXPORT_DIR="${EXPORT_DIR:-${SLURM_SUBMIT_DIR:-${PWD}}}"',
        'if [[ ! -f "${EXPORT_DIR}/launch.sh" ]]; then',
        '  echo "launch.sh is not in ${EXPORT_DIR}; set EXPORT_DIR" >&2',
        "  exit 2",
        "fi",
        'HOSTS="$(scontrol show hostnames "${SLURM_JOB_NODELIST}")"',
        "export MASTER_ADDR=\"${HOSTS%%$'\\n'*}\"",
        'export MASTER_PORT="${MASTER_PORT:-29500}"',
        'export RDZV_ID="${SLURM_JOB_ID}" NNODES="${SLURM_JOB_NUM_NODES}"',
        f'srun --kill-on-bad-exit=1 bash "${{EXPORT_DIR}}/launch.sh" {arguments}'.rstrip(),
    ]
    return "\n".join([*lines, ""])
