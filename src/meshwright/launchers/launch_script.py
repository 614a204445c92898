"""Shell text that all targets share: torchrun on each node, and a Slurm job that starts it.

One task per node; torchrun starts one process per device and the nodes meet at a c10d rendezvous. Values that
belong to a site (addresses, paths, numbers of steps) are shell variables with defaults.
"""

import shlex
from collections.abc import Sequence

from meshwright import __version__
from meshwright.launchers.job_nodes import Job

LIMIT_S = 300
"""Seconds before the time limit in which a run saves and ends."""
REQUEUE = ("#SBATCH --requeue", "#SBATCH --open-mode=append", f"#SBATCH --signal=B:USR1@{LIMIT_S}")
REQUEUE_AT_LIMIT = (
    "# Slurm requeues the job after a failed node or a preemption. At the time limit it sends USR1 to this script: the",
    "# run takes a checkpoint and ends, and the requeued job goes on from it.",
    "STEP=$! LIMIT=",
    "trap 'LIMIT=1; kill -TERM \"${STEP}\"' USR1",
    "STATUS=0",
    'wait "${STEP}" || STATUS=$?',
    'if [[ -n "${LIMIT}" ]]; then',
    '  wait "${STEP}" || true',
    '  scontrol requeue "${SLURM_JOB_ID}"',
    "fi",
    'exit "${STATUS}"',
)
"""Shell text that waits for the step of a job that resumes."""


def header(target: str, release: str, summary: str, *remarks: str) -> str:
    """Return the comment at the top of a file: tool, target, the plan in a line."""
    lines = [f"meshwright {__version__} for {target} {release}", summary, *remarks]
    return "\n".join(f"# {line}".rstrip() for line in lines)


def torchrun(job: Job, program: Sequence[str]) -> str:
    """Return the torchrun command for one node, one option per line. ``program`` is shell text, already quoted."""
    meeting = [
        "--rdzv-backend c10d",
        '--rdzv-endpoint "${MASTER_ADDR}:${MASTER_PORT}"',
        '--rdzv-id "${RDZV_ID}"',
    ]
    if job.host_order is not None:
        meeting = [
            '--node-rank "${NODE_RANK}"',
            '--master-addr "${MASTER_ADDR}"',
            '--master-port "${MASTER_PORT}"',
        ]
    options = ['--nnodes "${NNODES}"', f"--nproc-per-node {job.devices_per_node}", *meeting]
    if job.restarts:
        options.append(f"--max-restarts {job.restarts}")
    return " \\\n  ".join(["exec torchrun", *options, *program])


def node_rank_lines(order: tuple[int, ...]) -> list[str]:
    """Return shell text that turns the number of a host, in NODE or from Slurm, into its place, NODE_RANK."""
    places = sorted(range(len(order)), key=order.__getitem__)
    return [
        "# The plan's node_order: NODE is this host's number as the cluster's links count it, from 0, NODE_RANK its",
        "# place among the ranks. MASTER_ADDR is the host of place 0.",
        f"NODE_PLACES=({' '.join(map(str, places))})",
        'NODE_RANK="${NODE_PLACES[${NODE:-${SLURM_NODEID:?set NODE}}]}"',
    ]


def launch_script(
    top: str, job: Job, body: Sequence[str], sources: Sequence[str] = ("args.sh",), *, meets: bool = True
) -> str:
    """Return ``launch.sh``: run on every node; a single node needs no variable. ``sources``: files to source first.

    ``meets``: the script brings the nodes together; else a launcher has started every rank.
    """
    meeting = _meeting_lines(job) if meets else []
    start = [
        "#!/usr/bin/env bash",
        top,
        "set -euo pipefail",
        'HERE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"',
        *(f'source "${{HERE}}/{name}"' for name in sources),
        "",
        *meeting,
    ]
    return "\n".join([*start, *body, ""])


def _meeting_lines(job: Job) -> list[str]:
    """Return shell text with the variables that say where nodes meet."""
    return [
        "# Where the nodes meet; job.sbatch sets these.",
        f'NNODES="${{NNODES:-{job.nodes}}}"',
        'MASTER_ADDR="${MASTER_ADDR:-localhost}"',
        'MASTER_PORT="${MASTER_PORT:-29500}"',
        'RDZV_ID="${RDZV_ID:-0}"',
        *([] if job.host_order is None else node_rank_lines(job.host_order)),
        "",
    ]


def _first_host(job: Job) -> list[str]:
    """Return the shell line that sets MASTER_ADDR to the host of the first ranks."""
    if job.host_order is None:
        return ["export MASTER_ADDR=\"${HOSTS%%$'\\n'*}\""]
    return [
        "# Hosts are numbered as Slurm lists them: the cluster file must count them so.",
        f'export MASTER_ADDR="$(sed -n {job.host_order[0] + 1}p <<<"${{HOSTS}}")"',
    ]


def sbatch_script(top: str, job: Job, arguments: str = "") -> str:
    """Return ``job.sbatch``: one task per node, each running ``launch.sh``. Submit it from its own folder.

    ``arguments`` is shell text after ``launch.sh``: ``"$@"`` passes the submitted arguments on.
    """
    start = f'srun --kill-on-bad-exit=1 bash "${{EXPORT_DIR}}/launch.sh" {arguments}'.rstrip()
    lines = [
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name={shlex.quote(job.name)}",
        f"#SBATCH --nodes={job.nodes}",
        "#SBATCH --ntasks-per-node=1",
        *([f"#SBATCH --gpus-per-node={job.devices_per_node}"] if job.accelerated else []),
        "#SBATCH --exclusive",
        *(REQUEUE if job.restarts else ()),
        top,
        "# Submit from the folder of this file: Slurm runs a copy of it elsewhere.",
        "set -euo pipefail",
        'EXPORT_DIR="${EXPORT_DIR:-${SLURM_SUBMIT_DIR:-${PWD}}}"',
        'if [[ ! -f "${EXPORT_DIR}/launch.sh" ]]; then',
        '  echo "launch.sh is not in ${EXPORT_DIR}; set EXPORT_DIR" >&2',
        "  exit 2",
        "fi",
        'HOSTS="$(scontrol show hostnames "${SLURM_JOB_NODELIST}")"',
        *_first_host(job),
        'export MASTER_PORT="${MASTER_PORT:-29500}"',
        'export RDZV_ID="${SLURM_JOB_ID}" NNODES="${SLURM_JOB_NUM_NODES}"',
        *([start] if not job.restarts else [f"{start} &", *REQUEUE_AT_LIMIT]),
    ]
    return "\n".join([*lines, ""])
