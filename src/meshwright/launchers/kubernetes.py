"""Common parts of jobs on Kubernetes: a ConfigMap with the scripts, a pod that mounts it, and the rendezvous.

The pods of a job start in any order. The first one hosts the rendezvous under its own host name; the others
wait until its port answers, because torchrun would give up after a minute. NCCL needs more shared memory than the
64 MiB of a pod, hence the volume in memory.
"""

import re
from collections.abc import Mapping

from meshwright.launchers.accelerators import node_resource, node_selector
from meshwright.launchers.launch_script import Job
from meshwright.launchers.launcher import IMAGE, file_top
from meshwright.launchers.yaml_text import yaml_documents

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
    remarks = (
        f"{release}: kubectl create -f {file}",
        f"Set first: the image ({IMAGE}), with what launch.sh starts in it; variables of launch.sh go under env.",
        "Arguments of launch.sh go behind it. Network devices (RDMA) and tolerations are your cluster's: add them.",
        "The nodeSelector is the label that the vendor's discovery writes: change it where your nodes have another."
        if node_selector(job)
        else f"No label of nodes with {job.device.id} is known here: add a nodeSelector.",
    )
    return {file: yaml_documents(file_top(top, *remarks), [_config_map(job, scripts), manifest])}


def pod(job: Job, container: Mapping[str, object]) -> dict[str, object]:
    """Return a pod's node selector and volumes around its container."""
    selector = node_selector(job)
    mounts = [
        {"name": "scripts", "mountPath": MOUNT},
        {"name": "shared-memory", "mountPath": "/dev/shm"},
    ]
    return {
        **({"nodeSelector": selector} if selector else {}),
        "containers": [{**container, "volumeMounts": mounts}],
        "volumes": [
            {"name": "scripts", "configMap": {"name": f"{object_name(job)}-scripts"}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
    }


def devices(job: Job) -> dict[str, object]:
    """Return the resource limits for the devices of one node."""
    return {"limits": {node_resource(job).name: job.devices_per_node}}


def _config_map(job: Job, scripts: Mapping[str, str]) -> dict[str, object]:
    assert all(re.fullmatch(r"[-._a-zA-Z0-9]+", name) for name in scripts), "a key is a file name"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{object_name(job)}-scripts"},
        "data": dict(scripts),
    }
