"""Write a JobSet ``jobset.x-k8s.io/v1alpha2``: one indexed Job with a pod for every node, and a ConfigMap of scripts.

The pods have names in DNS: pod i of job j is NAME-workers-j-i.NAME. Source: kubernetes-sigs/jobset v0.12.0,
``config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml`` and its PyTorch example.
"""

from collections.abc import Mapping

from meshwright.launchers.job_nodes import Job
from meshwright.launchers.kubernetes import devices, manifest_file, object_name, pod, start_text


def jobset(top: str, job: Job, scripts: Mapping[str, str]) -> dict[str, str]:
    """Return ``job.jobset.yaml``: the ConfigMap and the JobSet."""
    return manifest_file("job.jobset.yaml", "JobSet v0.12.0", top, job, scripts, _jobset(job))


def _jobset(job: Job) -> dict[str, object]:
    worker = {
        "parallelism": job.nodes,
        "completions": job.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": {"restartPolicy": "Never", **pod(job, _container(job))}},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": object_name(job)},
        "spec": {
            "failurePolicy": {"maxRestarts": job.restarts},
            "replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": worker}}],
        },
    }


def _container(job: Job) -> dict[str, object]:
    name = object_name(job)
    variables = {
        "MASTER_ADDR": f"{name}-workers-0-0.{name}",
        "MASTER_PORT": "29500",
        "NNODES": str(job.nodes),
        "RDZV_ID": name,
    }
    return {
        "name": "worker",
        "image": job.image,
        "command": ["bash", "-c"],
        "args": [start_text("JOB_COMPLETION_INDEX")],
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "resources": devices(job),
    }
