"""Map our devices to the launchers' names: ``accelerators.csv``.

``skypilot`` is the accelerator of the catalog that SkyPilot 0.14.1 reads (skypilot-catalog at 001ca54, v8). The label
of Kubernetes nodes is the product's name as the vendor's discovery writes it: ``nvidia.com/gpu.product`` (NVIDIA GPU
feature discovery; spaces become hyphens) or ``amd.com/gpu.product-name`` (AMD node labeller; underscores). Clusters
with other labels need another selector.
"""

import csv
from dataclasses import dataclass
from importlib.resources import files

from meshwright.errors import Problem, UnsupportedError
from meshwright.launchers.job_nodes import Job


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device; an unknown name is empty."""

    device: str
    skypilot: str
    node_label: str


@dataclass(frozen=True, slots=True)
class Resource:
    """A vendor's Kubernetes resource, and the label with the product's name."""

    name: str
    label: str


RESOURCES = {
    "NVIDIA": Resource("nvidia.com/gpu", "nvidia.com/gpu.product"),
    "AMD": Resource("amd.com/gpu", "amd.com/gpu.product-name"),
}


def accelerators() -> dict[str, Accelerator]:
    """Return all rows of the table by our device id."""
    path = files("meshwright.launchers").joinpath("accelerators.csv")
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    return {row["device"]: Accelerator(row["device"], row["skypilot"], row["node_label"]) for row in rows}


def skypilot_name(job: Job) -> str:
    """Return SkyPilot's name of the job's device. Raises UnsupportedError if the catalog has none."""
    skypilot_names = {row.device: row.skypilot for row in accelerators().values() if row.skypilot}
    if job.device.id not in skypilot_names:
        rule = "SkyPilot's catalog has no accelerator that is this device"
        raise _unsupported(job, rule, "launcher sbatch, or one of " + ", ".join(skypilot_names))
    return skypilot_names[job.device.id]


def node_resource(job: Job) -> Resource:
    """Return the Kubernetes resource of the job's devices. Raises UnsupportedError for a vendor without one."""
    if job.device.vendor not in RESOURCES:
        rule = f"no resource of Kubernetes is known here for devices by {job.device.vendor or 'this vendor'}"
        raise _unsupported(job, rule, "launcher sbatch, or a device by " + " or ".join(RESOURCES))
    return RESOURCES[job.device.vendor]


def node_selector(job: Job) -> dict[str, str]:
    """Return the label of nodes with the job's device; empty if its value is not known."""
    row = accelerators().get(job.device.id)
    return {node_resource(job).label: row.node_label} if row and row.node_label else {}


def _unsupported(job: Job, rule: str, suggestion: str) -> UnsupportedError:
    return UnsupportedError(Problem("cluster", job.device.id, rule, suggestion))
