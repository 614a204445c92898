"""Constants of the cost model, read from tables in ``cost/data``.

``constants.csv`` has the global ones, ``kernels.csv`` those of each device, ``fp8_recipes.csv`` those of recipes.

Every row says its unit, its origin and how well it is identified. A device without kernel measurements takes the
row of its nearest relative (``RELATIVES``) or a generic row, and is reported as such by ``Kernels.measured``.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from meshwright.cluster.cluster import Cluster

MICRO = 1e-6
GENERIC = "generic"

RELATIVES: dict[str, str] = {
    "h800-sxm": "h100",
    "gh200": "h200",
    "h20-sxm": "h100",
}
"""Device families that share another family's kernels."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A collective inside one fast domain: latency + per-rank latency, plateau, saturation.

    t = latency_s + latency_per_rank_s·(n−1) + V/bandwidth·((V + V0)/V)^q with V the bytes times bus factor.
    """

    latency_s: float
    latency_per_rank_s: float
    bandwidth_bytes_per_s: float
    saturation_bytes: float
    saturation_power: float


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernel constants of one device family. ``measured`` is False for a stand-in; ``family`` names the row.

    The curves were measured on links of ``measured_scaleup_bytes_per_s`` per device and direction.
    """

    family: str
    measured: bool
    gemm_efficiency: float
    gemm_memory_efficiency: float
    gemm_launch_s: float
    gemm_norm: float
    attention_efficiency: dict[str, float]
    attention_launch_s: float
    measured_scaleup_bytes_per_s: float
    all_reduce: Curve
    all_gather: Curve
    origin: str


@cache
def constants() -> dict[str, float]:
    """Global constants by name."""
    with (files("meshwright.cost") / "data" / "constants.csv").open(encoding="utf-8") as lines:
        return {row["name"]: float(row["value"]) for row in csv.DictReader(lines)}


def constant_on(cluster: Cluster, name: str) -> float:
    """Return a global constant: the cluster's own where its calibration has one."""
    return dict(cluster.calibration).get(name, constants()[name])


JITTER = "step_jitter"


def step_jitter_on(cluster: Cluster) -> float:
    """Return the spread of a cluster's devices in speed: of its calibration, else of its file, else the usual one."""
    usual = constants()[JITTER] if cluster.step_jitter is None else cluster.step_jitter
    return dict(cluster.calibration).get(JITTER, usual)


@cache
def kernels(device_id: str) -> Kernels:
    """Kernel constants for a device; a stand-in where nothing was measured."""
    rows = _rows()
    family = next((name for name in sorted(rows, key=len, reverse=True) if _is_of(device_id, name)), None)
    relative = next((to for name, to in RELATIVES.items() if device_id.startswith(name)), None)
    chosen = family or relative or GENERIC
    found = _kernels(chosen, rows[chosen], measured=family is not None and rows[chosen]["measured"] == "yes")
    return found


class RecipeCost(NamedTuple):
    """Cost of a recipe of fp8 (``workload/fp8_recipe.py``).

    The rate of its products against that of ``current``, and the bytes that quantising an element moves.
    """

    product_rate: float
    quantise_bytes: float


@cache
def recipe_costs() -> dict[str, RecipeCost]:
    """Costs of the recipes of fp8 by name."""
    with (files("meshwright.cost") / "data" / "fp8_recipes.csv").open(encoding="utf-8") as lines:
        return {
            row["recipe"]: RecipeCost(float(row["product_rate"]), float(row["quantise_bytes"]))
            for row in csv.DictReader(lines)
        }


RECIPE = "fp8_recipe."
"""Beginning of the names of a recipe's costs: ``fp8_recipe.delayed.quantise_bytes``."""


def recipe_cost(recipe: str, calibration: Mapping[str, float]) -> RecipeCost:
    """Return the cost of a recipe of fp8, updated from a calibration."""
    usual = recipe_costs()[recipe]
    return RecipeCost(
        **{key: calibration.get(f"{RECIPE}{recipe}.{key}", value) for key, value in usual._asdict().items()}
    )


ATTENTION = "attention_efficiency."
KERNEL_NUMBERS = (
    *("gemm_efficiency", "gemm_memory_efficiency", "gemm_launch_s", "gemm_norm"),
    "attention_launch_s",
)
CURVES = ("all_reduce", "all_gather")
CURVE_NUMBERS = ("latency_s", "latency_per_rank_s", "saturation_bytes", "saturation_power")
PLATEAU = "efficiency"
"""A curve's plateau over the rate of the links that it was measured on."""


def kernel_constant(found: Kernels, name: str) -> float:
    """Return a constant of a kernel family by its name in a calibration."""
    owner, _, key = name.partition(".")
    if owner == "attention_efficiency":
        return found.attention_efficiency[key]
    if not key:
        return float(getattr(found, name))
    curve = _curve_of(found, owner)
    if key == PLATEAU:
        return curve.bandwidth_bytes_per_s / found.measured_scaleup_bytes_per_s
    return float(getattr(curve, key))


def on_links(found: Kernels, bytes_per_s: float) -> Kernels:
    """Return kernel constants whose curves are those of a node's own links, in bytes per second and direction.

    Slower links than the measured ones have lower plateaus in proportion; faster ones have the measured plateaus.
    """
    share = min(1.0, bytes_per_s / found.measured_scaleup_bytes_per_s)
    curves = {name: _curve_of(found, name) for name in CURVES}
    scaled = {
        name: replace(of, bandwidth_bytes_per_s=share * of.bandwidth_bytes_per_s)
        for name, of in curves.items()
    }
    return replace(found, measured_scaleup_bytes_per_s=bytes_per_s, **scaled)  # type: ignore[arg-type]


def calibrated(found: Kernels, calibration: Mapping[str, float]) -> Kernels:
    """Return kernel constants updated from a calibration.

    Attention has keys ``attention_efficiency.CLASS``, a curve keys like ``all_reduce.latency_s``; the efficiency of a
    curve is relative to the links that it was measured on.
    """
    numbers = {name: calibration[name] for name in KERNEL_NUMBERS if name in calibration}
    attention = {
        name: calibration.get(f"{ATTENTION}{name}", value)
        for name, value in found.attention_efficiency.items()
    }
    curves = {name: _calibrated_curve(found, name, calibration) for name in CURVES}
    return replace(found, attention_efficiency=attention, **numbers, **curves)  # type: ignore[arg-type]


def _calibrated_curve(found: Kernels, name: str, calibration: Mapping[str, float]) -> Curve:
    own = {key: calibration[f"{name}.{key}"] for key in CURVE_NUMBERS if f"{name}.{key}" in calibration}
    if f"{name}.{PLATEAU}" in calibration:
        own["bandwidth_bytes_per_s"] = calibration[f"{name}.{PLATEAU}"] * found.measured_scaleup_bytes_per_s
    return replace(_curve_of(found, name), **own)


def _curve_of(found: Kernels, name: str) -> Curve:
    curve = getattr(found, name)
    assert isinstance(curve, Curve)
    return curve


def _is_of(device_id: str, family: str) -> bool:
    return device_id == family or device_id.startswith(family + "-")


def kernel_families() -> tuple[str, ...]:
    """Return the device families with kernel constants of their own."""
    return tuple(_rows())


@cache
def _rows() -> dict[str, dict[str, str]]:
    with (files("meshwright.cost") / "data" / "kernels.csv").open(encoding="utf-8") as lines:
        return {row["device"]: row for row in csv.DictReader(lines)}


def _kernels(family: str, row: dict[str, str], *, measured: bool) -> Kernels:
    def number(name: str) -> float:
        return float(row[name])

    return Kernels(
        family=family,
        measured=measured,
        gemm_efficiency=number("gemm_efficiency"),
        gemm_memory_efficiency=number("gemm_memory_efficiency"),
        gemm_launch_s=number("gemm_launch_us") * MICRO,
        gemm_norm=number("gemm_norm"),
        attention_efficiency={
            "flash": number("flash_efficiency"),
            "flash3": number("flash3_efficiency"),
        },
        attention_launch_s=number("flash_launch_us") * MICRO,
        measured_scaleup_bytes_per_s=number("measured_scaleup_gb_s") * 1e9,
        all_reduce=_curve(row, "ar"),
        all_gather=_curve(row, "ag"),
        origin=row["origin"],
    )


def _curve(row: dict[str, str], prefix: str) -> Curve:
    return Curve(
        float(row[f"{prefix}_latency_us"]) * MICRO,
        float(row[f"{prefix}_latency_per_rank_us"]) * MICRO,
        float(row[f"{prefix}_bandwidth_gb_s"]) * 1e9,
        float(row[f"{prefix}_saturation_mb"]) * 1e6,
        float(row[f"{prefix}_saturation_power"]),
    )
