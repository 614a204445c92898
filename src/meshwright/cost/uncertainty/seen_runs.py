"""The published runs that the constants were fitted to, by stack, kernels, kind of model and precision.

A row of ``cost/data/seen_runs.csv`` holds the range of devices, nodes, network cards and sequence lengths of such runs,
and, where they are many, the standard deviation of their error. ``scripts/error_parts.py`` writes it with each fit.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import ceil, log2
from typing import NamedTuple

from meshwright.cost.constants import kernels
from meshwright.plans.setting import Setting

GBIT_PER_S = 1e9 / 8
SIXTEEN_BIT = ("bf16", "fp16")


class RunKind(NamedTuple):
    """Stack, kernels, kind of model and precision, which runs share that say something of each other."""

    stack: str
    kernels: str
    models: str
    precision: str


@dataclass(frozen=True, slots=True)
class Scale:
    """Size of a run: devices, nodes, Gbit/s of network cards per device, tokens of a sequence."""

    devices: float
    nodes: float
    nic_gbit_per_s: float
    seq_len: float


SCALES = ("devices", "nodes", "nic_gbit_per_s", "seq_len")


@dataclass(frozen=True, slots=True)
class SeenRuns:
    """Runs of one kind: how many, the least and the most of each scale, and their own ``sigma`` where they are many."""

    runs: int
    least: Scale
    most: Scale
    sigma: float | None = None

    def doublings_beyond(self, scale: Scale, name: str) -> float:
        """Return how many doublings a scale lies outside of the range of the runs; 0 inside."""
        value, least, most = (getattr(one, name) for one in (scale, self.least, self.most))
        return max(0.0, log2(value / most), log2(least / value))


def run_kind(setting: Setting) -> RunKind:
    """Return the kind of run that a setting describes."""
    precision = setting.workload.precision
    return RunKind(
        setting.stack.name,
        kernels(setting.cluster.pool.device.id).family,
        models(setting),
        "16-bit" if precision in SIXTEEN_BIT else precision,
    )


def models(setting: Setting) -> str:
    """Return ``dense`` or ``experts``."""
    return "dense" if setting.model.architecture.moe is None else "experts"


def scale_of(setting: Setting) -> Scale:
    """Return the scale of a setting. A node is a fast domain, or a host if that is larger."""
    pool, node = setting.cluster.pool, setting.cluster.pool.node
    return Scale(
        devices=pool.count,
        nodes=ceil(pool.count / max(node.devices, node.scaleup_domain)),
        nic_gbit_per_s=max(node.nic_bytes_per_s_per_device / GBIT_PER_S, 1.0),
        seq_len=setting.workload.seq_len,
    )


@cache
def seen_runs() -> dict[RunKind, SeenRuns]:
    """Return the table. The rows of the stack ``any`` have the range of all stacks together."""
    with (files("meshwright.cost") / "data" / "seen_runs.csv").open(encoding="utf-8") as lines:
        return {
            RunKind(row["stack"], row["kernels"], row["models"], row["precision"]): SeenRuns(
                int(row["runs"]),
                Scale(*(float(row[f"least_{name}"]) for name in SCALES)),
                Scale(*(float(row[f"most_{name}"]) for name in SCALES)),
                float(row["sigma"]) if row["sigma"] else None,
            )
            for row in csv.DictReader(lines)
        }


def runs_of_any_stack(setting: Setting) -> SeenRuns:
    """Return the range of all fitted runs of a kind of model."""
    return seen_runs()[RunKind("any", "any", models(setting), "any")]
