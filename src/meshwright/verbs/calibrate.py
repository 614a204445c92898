"""Calibrate a cluster on a table of runs, from the catalogue or from a measured cluster file; or serving."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from meshwright.calibration.calibrate_cluster import ClusterCalibration, fit_cluster_constants
from meshwright.calibration.calibrate_serving import ServingCalibration, calibrate_serving
from meshwright.calibration.observations import on_cluster
from meshwright.calibration.usable_runs import usable_runs
from meshwright.cluster.cluster import Cluster
from meshwright.cluster.load import load_cluster
from meshwright.errors import InputError, Problem
from meshwright.validation.read_run_table import read_runs
from meshwright.validation.serving.read_serving_table import is_serving_table


@dataclass(frozen=True)
class Calibrated(ClusterCalibration):
    """A fitted calibration; ``remarks`` name the models of which only the columns were known."""

    remarks: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        return {**super().to_json(), "remarks": list(self.remarks)}


def calibrated(path: str | Path, on: str | None) -> Calibrated | ServingCalibration:
    """Constants fitted to the runs of a table, or levels to serving runs. Raises InputError.

    ``on`` is a cluster that is known better than the table says: what it knows is kept, and the catalogue need not have
    its device.
    """
    if is_serving_table(path):
        if on is not None:
            rule = "is a cluster to fit, and the levels of serving runs belong to models, devices and engines"
            raise InputError(Problem("on", on, rule, "leave --on out"))
        return calibrate_serving(path)
    base = load_cluster(on) if on else None
    own = [pool.device.id for pool in base.pools] if base else []
    usable = usable_runs(read_runs(path, own), base)
    observations = on_cluster(usable.observations, base) if base else usable.observations
    found = fit_cluster_constants(observations, usable.skipped)
    cluster = _with_constants(base, found) if base else found.cluster
    parts = {field.name: getattr(found, field.name) for field in fields(found)}
    return Calibrated(**parts | {"cluster": cluster}, remarks=usable.remarks)


def _with_constants(base: Cluster, found: ClusterCalibration) -> Cluster:
    """Return the cluster in its own size, with the fitted constants."""
    fitted = found.cluster
    return replace(base, calibration=fitted.calibration, calibrated=fitted.calibrated, tiers=fitted.tiers)
