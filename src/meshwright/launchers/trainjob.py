"""Write a Kubeflow Trainer TrainJob ``trainer.kubeflow.org/v1alpha1`` on the ``torch-distributed`` runtime.

The runtime's torch policy sets PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT in the container
``node``; the scripts are mounted by a runtime patch (Trainer 2.2 or later; 2.1 called it podTemplateOverrides). A
patch may not set variables of that container, hence ``trainer.env``. Sources: kubeflow/trainer v2.3.0,
``manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml``, ``pkg/runtime/framework/plugins/torch/torch.go``,
``pkg/runtime/framework/plugins/jobset/jobset.go``.
"""

from collections.abc import Mapping

from meshwright.launchers.job_nodes import Job
from meshwright.launchers.kubernetes import devices, manifest_file, object_name, pod, start_text

VARIABLES = (
    'export NNODES="${PET_NNODES}" MASTER_ADDR="${PET_MASTER_ADDR}" MASTER_PORT="${PET_MASTER_PORT}"\n'
)


def trainjob(top: str, job: Job, scripts: Mapping[str, str]) -> dict[str, str]:
    """Return ``job.trainjob.yaml``: the ConfigMap and the TrainJob."""
    return manifest_file("job.trainjob.yaml", "Kubeflow Trainer v2.3.0", top, job, scripts, _trainjob(job))


def _trainjob(job: Job) -> dict[str, object]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": object_name(job)},
        "spec": {
            "runtimeRef": {"kind": "ClusterTrainingRuntime", "name": "torch-distributed"},
            "trainer": {
                "numNodes": job.nodes,
                "numProcPerNode": job.devices_per_node,
                "image": job.image,
                "command": ["bash", "-c"],
                "args": [VARIABLES + start_text("PET_NODE_RANK")],
                "env": [{"name": "RDZV_ID", "value": object_name(job)}],
                "resourcesPerNode": devices(job),
            },
            "runtimePatches": [{"manager": "meshwright/export", "trainingRuntimeSpec": _patch(job)}],
        },
    }


def _patch(job: Job) -> dict[str, object]:
    """Return the pod's volumes and node selector, nested as in the runtime: JobSet, Job, pod."""
    node = {"name": "node", "template": {"spec": {"template": {"spec": pod(job, {"name": "node"})}}}}
    return {"template": {"spec": {"replicatedJobs": [node]}}}
