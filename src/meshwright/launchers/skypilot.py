"""Write a SkyPilot 0.14.1 task on equal nodes, started from the folder of the scripts.

``sky launch`` starts it once; ``sky jobs launch`` starts it again elsewhere after a preemption, and after a failure as
often as ``job_recovery`` says. ``workdir: .`` copies the folder to every node and ``run`` starts there. Sources:
SkyPilot 0.14.1, ``utils/schemas.py`` (task, resources, storage), ``skylet/constants.py`` (names of the variables),
``task.py`` (names, volumes), ``data/storage.py`` (modes of mounting).
"""

import re
from collections.abc import Mapping

from meshwright.launchers.accelerators import skypilot_name
from meshwright.launchers.job_nodes import Job
from meshwright.launchers.kubernetes import claim_name
from meshwright.launchers.launcher import file_top, image_remarks
from meshwright.launchers.yaml_text import yaml_documents

RUN = """\
# The first node is where the others meet.
export MASTER_ADDR="$(head -n1 <<<"${SKYPILOT_NODE_IPS}")"
export NNODES="${SKYPILOT_NUM_NODES}" RDZV_ID="${SKYPILOT_TASK_ID}"
exec bash launch.sh
"""


def skypilot(top: str, job: Job, scripts: Mapping[str, str]) -> dict[str, str]:
    """Return ``job.sky.yaml``; ``scripts`` lie in the same folder and are copied with it."""
    remarks = (
        f"SkyPilot 0.14.1. In the folder of this file: sky {'jobs ' if job.restarts else ''}launch job.sky.yaml",
        *image_remarks(job, "envs"),
        "Arguments of launch.sh go behind it in run.",
        *_storage_remarks(job),
    )
    task = {
        "name": _task_name(job.name),
        "num_nodes": job.nodes,
        "resources": {
            "accelerators": f"{skypilot_name(job)}:{job.devices_per_node}",
            "image_id": f"docker:{job.image}",
            **({"job_recovery": {"max_restarts_on_errors": job.restarts}} if job.restarts else {}),
        },
        "workdir": ".",
        **_mounts(job),
        "run": RUN,
    }
    return {"job.sky.yaml": yaml_documents(file_top(top, *remarks), [task])}


def _mounts(job: Job) -> dict[str, object]:
    """Return the keys that mount a job's storage: a bucket, or a volume of the job's name."""
    if job.storage is None:
        return {}
    if job.storage.bucket:
        mode = "MOUNT_CACHED" if job.nodes == 1 else "MOUNT"
        return {"file_mounts": {job.storage.path: {"source": job.storage.bucket, "mode": mode}}}
    return {"volumes": {job.storage.path: claim_name(job)}}


def _storage_remarks(job: Job) -> tuple[str, ...]:
    if job.storage is None:
        return ()
    if not job.storage.bucket:
        return (
            f"Make the volume {claim_name(job)} first (sky volumes apply), one that all nodes can write to.",
        )
    if job.nodes == 1:
        return (
            "The bucket is written behind the run's back: what was not yet uploaded is lost with the node.",
        )
    return (
        "Checkpoints of several nodes are committed by renaming a folder, and metrics.jsonl grows by lines. Mounts of",
        "buckets do the first in many steps, and that of S3 does not do the second: prefer a volume (--storage PATH).",
    )


def _task_name(name: str) -> str:
    """Return a legal SkyPilot name: letters and digits with single separators between them."""
    return "-".join(re.findall(r"[A-Za-z0-9]+(?:[._][A-Za-z0-9]+)*", name)) or "job"
