"""Write a KubeRay RayJob ``ray.io/v1``: a head without devices, a worker pod for every node, and a ConfigMap.

The entry point runs on the head. It is ``job.ray_ranks.py``, which starts ``launch.sh`` on the workers and supervises
it; the same program starts a job on any other Ray cluster. Sources: ray-project/kuberay v1.7.0,
``ray-operator/config/crd/bases/ray.io_rayjobs.yaml`` and ``ray-operator/config/samples/ray-job.sample.yaml``.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files

from meshwright.launchers.accelerators import RESOURCES
from meshwright.launchers.job_nodes import Job
from meshwright.launchers.kubernetes import MOUNT, devices, manifest_file, object_name, pod

PROGRAM = "job.ray_ranks.py"
FILE = "job.rayjob.yaml"


def rayjob(top: str, job: Job, scripts: Mapping[str, str]) -> dict[str, str]:
    """Return ``job.ray_ranks.py``, and ``job.rayjob.yaml`` with the ConfigMap and the RayJob."""
    program = files("meshwright.launchers").joinpath("scripts", "ray_ranks.py").read_text(encoding="utf-8")
    manifest = manifest_file(FILE, "KubeRay v1.7.0", top, job, {**scripts, PROGRAM: program}, _rayjob(job))
    return {PROGRAM: program} | manifest


def ray_words(job: Job, folder: str, command: Sequence[str]) -> list[str]:
    """Return the words that start a command on all nodes with the program in ``folder``."""
    gpus = job.devices_per_node if job.accelerated and job.device.vendor in RESOURCES else 0
    options = {"nodes": job.nodes, "processes": job.processes_per_node, "gpus": gpus}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    restarts = ["--max-restarts", str(job.restarts)] if job.restarts else []
    return ["python", f"{folder}/{PROGRAM}" if folder else PROGRAM, *words, *restarts, "--", *command]


def _rayjob(job: Job) -> dict[str, object]:
    head = {
        name: value for name, value in pod(job, _container(job, "head")).items() if name != "nodeSelector"
    }
    worker = pod(job, _container(job, "worker") | {"resources": devices(job)})
    workers = {
        "groupName": "workers",
        **dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), job.nodes),
        "rayStartParams": {},
        "template": {"spec": worker},
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": object_name(job)},
        "spec": {
            "entrypoint": " ".join(ray_words(job, MOUNT, ["bash", f"{MOUNT}/launch.sh"])),
            "backoffLimit": job.restarts,
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": {
                "headGroupSpec": {"rayStartParams": {}, "template": {"spec": head}},
                "workerGroupSpecs": [workers],
            },
        },
    }


def _container(job: Job, name: str) -> dict[str, object]:
    return {"name": f"ray-{name}", "image": job.image}
