"""Measured runs as the fit sees them: settings with arrays of plans, measured step times, and where they are from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.graph import Cluster
from meshwright.cost.constants import kernels
from meshwright.cost.evaluate import step_seconds
from meshwright.errors import InputError, Problem
from meshwright.plan.arrays import PlanArrays
from meshwright.plan.setting import Setting
from meshwright.validation.settings import of_size

Floats = NDArray[np.float64]


class Target(Protocol):
    """What a fit aims at: measured times of plans in one setting, with a source for every time."""

    @property
    def setting(self) -> Setting:
        """What all plans are for."""

    @property
    def plans(self) -> PlanArrays:
        """The plans that were timed."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Where each time is from."""

    def log_errors(self, values: Mapping[str, float]) -> Floats:
        """log(predicted/measured) of every time when constants have ``values``."""


@dataclass(frozen=True)
class Observation:
    """Runs that share a setting: n plans, their measured seconds per step and the source of each."""

    setting: Setting
    plans: PlanArrays
    measured_s: Floats
    sources: tuple[str, ...]

    def log_errors(self, values: Mapping[str, float]) -> Floats:
        """log(predicted/measured) of every run when constants have ``values``."""
        return np.log(step_seconds(self.plans, with_values(self.setting, values)) / self.measured_s)


def on_cluster(observations: Sequence[Observation], base: Cluster) -> list[Observation]:
    """The same runs on a cluster that is known better than a table says: its nodes, tiers and constants.

    Raises InputError where the runs are of another device.
    """
    if len(base.pools) != 1:
        rule = f"has {len(base.pools)} pools, and runs are of one kind of device"
        raise InputError(Problem("on", base.name, rule, f"a cluster of {base.pools[0].name} alone"))
    others = sorted({o.setting.cluster.pool.device.id for o in observations} - {base.pool.device.id})
    if others:
        rule = f"{base.name} has {base.pool.device.id}, the runs are of {', '.join(others)}"
        raise InputError(Problem("on", base.name, rule, f"a cluster of {others[0]}"))
    return [
        replace(o, setting=replace(o.setting, cluster=of_size(base, base.pool, o.setting.cluster.devices)))
        for o in observations
    ]


def with_values(setting: Setting, values: Mapping[str, float]) -> Setting:
    """The setting with constants changed: global ones, those of its device, those of its stack.

    Names: ``hbm_efficiency`` (global), ``a100:gemm_efficiency`` (a kernel family's), ``llm-foundry/elementwise_factor``
    (a stack's).
    """
    family = kernel_family(setting)
    stack = setting.stack
    calibration, numbers = {}, {}
    for name, value in values.items():
        if "/" in name:
            owner, field = name.split("/")
            if owner == stack.name:
                numbers[field] = value
        elif ":" in name:
            owner, field = name.split(":")
            if owner == family:
                calibration[field] = value
        else:
            calibration[name] = value
    merged = dict(setting.cluster.calibration) | calibration
    cluster = replace(setting.cluster, calibration=tuple(merged.items()))
    return replace(setting, cluster=cluster, stack=replace(stack, **numbers))  # type: ignore[arg-type]


def kernel_family(setting: Setting) -> str:
    """The family of kernel constants that a setting's device uses."""
    return kernels(setting.cluster.pool.device.id).family
