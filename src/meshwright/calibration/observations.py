"""Measured runs as a fit's observations: settings with arrays of plans, measured step times, and their sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.cluster import Cluster
from meshwright.cost.closed_form.evaluate_plans import step_seconds
from meshwright.cost.constant_values import with_values
from meshwright.errors import InputError, Problem
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.setting import Setting
from meshwright.validation.run_setting import of_size

Floats = NDArray[np.float64]


class Target(Protocol):
    """Data to fit: measured times of plans in one setting, with a source for every time."""

    @property
    def setting(self) -> Setting:
        """The setting of all plans."""

    @property
    def plans(self) -> PlanArrays:
        """The plans that were timed."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The source of each time."""

    def log_errors(self, values: Mapping[str, float]) -> Floats:
        """Return log(predicted/measured) of every time with the constants ``values``."""


@dataclass(frozen=True)
class Observation:
    """Runs that share a setting: n plans, their measured seconds per step and the source of each."""

    setting: Setting
    plans: PlanArrays
    measured_s: Floats
    sources: tuple[str, ...]

    def log_errors(self, values: Mapping[str, float]) -> Floats:
        """Return log(predicted/measured) of every run with the constants ``values``."""
        return np.log(step_seconds(self.plans, with_values(self.setting, values)) / self.measured_s)


def on_cluster(observations: Sequence[Observation], base: Cluster) -> list[Observation]:
    """Return the same runs on a known cluster, with its nodes, tiers and constants instead of a table's.

    Raises InputError if the runs are of another device.
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
