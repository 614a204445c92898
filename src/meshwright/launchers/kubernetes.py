"""Common parts of jobs on Kubernetes: a ConfigMap with the scripts, a claim of storage, pods, and the rendezvous.

The pods of a job start in any order. The first one hosts the rendezvous under its own host name; the others
wait until its port answers, because torchrun would give up after a minute. NCCL needs more shared memory than the
64 MiB of a pod, hence the volume in memory. All pods write to the storage of a job, hence ReadWriteMany.
"""

import re
from collections.abc import Mapping

from meshwright.launchers.accelerators import node_resource, node_selector
from meshwright.launchers.job_nodes import Job
from meshwright.launchers.launcher import file_top, image_remarks
from meshwright.launchers.yaml_text import yaml_documents
from meshwright.units import GIB

MOUNT = "/etc/meshwright"
LONGEST_NAME = 40
"""Leaves room in the 63 letters of a host name for suffixes of controllers."""
MEETING = """\
if [[ "{index}" == 0 ]]; then
  export MASTER_ADDR="$(hostname)"
else
  until (exec 3<>"/dev/tcp/${{MASTER_ADDR}}/${{MASTER_PORT}}") 2>/dev/null; do sleep 2; done
fi
exec bash {mount}/launch.sh
"""


def object_name(job: Job) -> str:
    """Return the job's name as a DNS label: lower case, letters first."""
    plain = re.sub(r"[^a-z0-9]+", "-", job.name.lower()).strip("-")
    named = plain if plain[:1].isalpha() else f"job-{plain}"
    return named[:LONGEST_NAME].strip("-")


def start_text(index: str) -> str:
    """Return shell text that starts ``launch.sh`` in a pod; ``index`` is the variable with the pod's number."""
    return MEETING.format(index=f"${{{index}}}", mount=MOUNT)


def manifest_file(
    file: str, release: str, top: str, job: Job, scripts: Mapping[str, str], manifest: Mapping[str, object]
) -> dict[str, str]:
    """Return one file with the scripts and their manifest; its head lists what must be set first."""
    objects = [_config_map(job, scripts), *_claims(job), manifest]
    remarks = (
        f"{release}: kubectl apply -f {file}" if job.restarts else f"{release}: kubectl create -f {file}",
        *image_remarks(job, "env"),
        "Arguments of launch.sh go behind it. Network devices (RDMA) and tolerations are your cluster's: add them.",
        "The nodeSelector is the label that the vendor's discovery writes: change it where your nodes have another."
        if node_selector(job)
        else f"No label of nodes with {job.device.id} is known here: add a nodeSelector.",
        *storage_remarks(job),
    )
    return {file: yaml_documents(file_top(top, *remarks), objects)}


def storage_remarks(job: Job) -> tuple[str, ...]:
    """Return the lines of comment about a claim."""
    if job.storage is None:
        return ()
    return (
        f"The claim {claim_name(job)} needs volumes that many nodes write to (ReadWriteMany): add storageClassName",
        "where the default class has none. The size is that of the checkpoints: add that of your data.",
        "To start a job again, delete it by name: kubectl delete -f would delete the claim and the checkpoints too.",
    )


def claim_name(job: Job) -> str:
    """Return the name of a job's claim of storage."""
    return f"{object_name(job)}-storage"


def pod(job: Job, container: Mapping[str, object]) -> dict[str, object]:
    """Return a pod's node selector and volumes around its container."""
    selector = node_selector(job)
    mounts = [
        {"name": "scripts", "mountPath": MOUNT},
        {"name": "shared-memory", "mountPath": "/dev/shm"},
        *([] if job.storage is None else [{"name": "storage", "mountPath": job.storage.path}]),
    ]
    claim = {"name": "storage", "persistentVolumeClaim": {"claimName": claim_name(job)}}
    return {
        **({"nodeSelector": selector} if selector else {}),
        "containers": [{**container, "volumeMounts": mounts}],
        "volumes": [
            {"name": "scripts", "configMap": {"name": f"{object_name(job)}-scripts"}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
            *([] if job.storage is None else [claim]),
        ],
    }


def devices(job: Job) -> dict[str, object]:
    """Return the resource limits for the devices of one node."""
    return {"limits": {node_resource(job).name: job.devices_per_node}}


def _claims(job: Job) -> list[dict[str, object]]:
    """Return the claim of a job's storage, if it has any."""
    if job.storage is None:
        return []
    size = f"{max(1, -(-job.storage.size_bytes // GIB))}Gi"
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim_name(job)},
            "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": size}}},
        }
    ]


def _config_map(job: Job, scripts: Mapping[str, str]) -> dict[str, object]:
    assert all(re.fullmatch(r"[-._a-zA-Z0-9]+", name) for name in scripts), "a key is a file name"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{object_name(job)}-scripts"},
        "data": dict(scripts),
    }
