"""Times of the small kernels and collectives of inference on one device and node. All accept arrays.

product     t = t0 + ‖F/(e·P_f), bytes/(b·BW)‖_p, F = 2·(m + tile/2)·k·n: half a tile of rows is padding in the mean;
            bytes = bits_f/8·k·n + 2·m·(k + n). P_f is the peak of the weights' format, that of 16 bit where the device
            has none (weights are unpacked). Parameters by generation of device and format, ``data/products.csv``.
grouped     t = t0 + F/(e'·P_f) + bytes/(b'·BW), F with half a small tile of padding for each of the experts that have
            any rows; bytes are those experts' weights. The sum, not a smooth maximum, fits hardware/moe_measured.csv:
            .08 of the peak at 32 rows an expert, .25 at 128, .45 at 512 where the plateau is .74.
all-reduce  inside a domain of NVLink the curve of a custom kernel in a graph, t = α + V/B·((V + V0)/V)^q with
            V = 2(n−1)/n·bytes (``data/all_reduce.csv``); else the library's, as for training.
others      α + bytes/B on the library's curve. Between domains, too, the launches of a graph do not wait for processes.
pass        t = t0 + bytes/(η·BW).
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from meshwright.cluster.cluster import Pool
from meshwright.cost.constants import MICRO, Curve, kernels
from meshwright.cost.operators.kernel_and_collective_times import (
    HardwareTimes,
    hardware_times_for,
    saturation,
    smooth_maximum,
)
from meshwright.program.local_shape import Number
from meshwright.program.serving.storage_formats import PLAIN, WEIGHT_BITS

ACTIVATION_BYTES = 2
GENERATIONS = {
    "h100": "hopper",
    "h200": "hopper",
    "b200": "blackwell",
    "b300": "blackwell",
    "gb200": "blackwell",
    "gb300": "blackwell",
    "a100": "a100",
}
LEAST_OF_LINK = 0.5
"""Custom all-reduce kernels run on links of at least this part of those that they were measured on, not over PCIe."""
MULTIMEM = ("hopper", "blackwell")
PEAKS = {"fp16": "bf16", "fp8-block": "fp8", "int8": "fp8", "mxfp4": "fp4"}
"""Formats that multiply at the rate of another name of a device's peaks."""


@dataclass(frozen=True, slots=True)
class ProductForm:
    """Parameters of a matrix product in one format on one generation of devices."""

    efficiency: float
    memory_efficiency: float
    launch_s: float
    norm: float
    experts_efficiency: float


@cache
def data_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a table of ``data``."""
    with (files("meshwright.cost.serving") / "data" / name).open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@cache
def serving_constants() -> Mapping[str, float]:
    """Return the constants of small kernels by name."""
    return {row["name"]: float(row["value"]) for row in data_rows("constants.csv")}


@cache
def product_form(family: str, weights: str) -> ProductForm:
    """Return the parameters of products with weights in a format."""
    generation = GENERATIONS.get(family, "generic")
    name = {"fp16": PLAIN, "int8": "fp8", "mxfp4": "fp4", "int4-32": "int4"}.get(weights, weights)
    rows = {(row["family"], row["format"]): row for row in data_rows("products.csv")}
    row = rows.get((generation, name)) or rows["generic", name]
    return ProductForm(
        efficiency=float(row["efficiency"]),
        memory_efficiency=float(row["memory_efficiency"]),
        launch_s=float(row["launch_us"]) * MICRO,
        norm=float(row["norm"]),
        experts_efficiency=float(row["experts_efficiency"]),
    )


def all_reduce_curve(family: str) -> Curve | None:
    """Return the curve of a custom all-reduce inside a domain; None where none was measured."""
    row = next((row for row in data_rows("all_reduce.csv") if row["family"] == family), None)
    if row is None:
        return None
    return Curve(
        float(row["latency_us"]) * MICRO,
        0.0,
        float(row["bandwidth_gb_s"]) * 1e9,
        float(row["saturation_mb"]) * 1e6,
        float(row["saturation_power"]),
    )


@dataclass(frozen=True)
class ServingTimes:
    """Forms of one pool's device, node and network for inference. Times in seconds."""

    forms: HardwareTimes
    peak_flops: Mapping[str, float]
    constants: Mapping[str, float]
    all_reduce_curve: Curve | None

    def peak_of(self, weights: str) -> float:
        """Return the peak rate of products with weights in a format."""
        return self.peak_flops.get(PEAKS.get(weights, weights), self.forms.peak_16bit_flops)

    def product(self, m: Number, k: Number, n: Number, weights: str) -> Number:
        """Return the seconds of (m, k) × (k, n) with weights in a format."""
        form = product_form(self.forms.kernels.family, weights)
        padded = m + self.constants["tile_rows"] / 2
        compute = 2.0 * padded * k * n / (form.efficiency * self.peak_of(weights))
        moved = WEIGHT_BITS[weights] / 8 * k * n + ACTIVATION_BYTES * m * (k + n)
        memory = moved / (form.memory_efficiency * self.forms.memory_bytes_per_s)
        return np.where(np.asarray(m) > 0, form.launch_s + smooth_maximum(compute, memory, form.norm), 0.0)

    def grouped_product(self, rows: Number, experts: Number, k: Number, n: Number, weights: str) -> Number:
        """Return the seconds of ``rows`` over ``experts`` that have any, each (rows/experts, k) × (k, n)."""
        c, form = self.constants, product_form(self.forms.kernels.family, weights)
        padded = rows + experts * c["experts_tile_rows"] / 2
        compute = 2.0 * padded * k * n / (form.experts_efficiency * self.peak_of(weights))
        moved = WEIGHT_BITS[weights] / 8 * k * n * experts + ACTIVATION_BYTES * rows * (k + n)
        memory = moved / (c["experts_memory_efficiency"] * self.forms.memory_bytes_per_s)
        return np.where(np.asarray(rows) > 0, c["experts_launch_s"] + compute + memory, 0.0)

    def pass_(self, moved: Number) -> Number:
        """Return the seconds of a small kernel that moves ``moved`` bytes; 0 for none."""
        c = self.constants
        seconds = c["pass_launch_s"] + moved / (c["pass_efficiency"] * self.forms.memory_bytes_per_s)
        return np.where(np.asarray(moved) > 0, seconds, 0.0)

    def all_reduce(self, logical_bytes: Number, ranks: Number) -> Number:
        """Return the seconds of an all-reduce of ``ranks``; 0 for one."""
        if np.all(np.asarray(ranks) == 1):
            return 0.0
        within = np.asarray(ranks) <= self.forms.domain
        curve = self.all_reduce_curve
        if curve is None or not within.all():
            library = self.library_all_reduce(logical_bytes, ranks)
        if curve is None:
            return library
        volume = 2.0 * (ranks - 1) / ranks * np.asarray(logical_bytes, float)
        custom = curve.latency_s + volume / curve.bandwidth_bytes_per_s * saturation(volume, curve)
        custom = np.where(volume > 0, custom, 0.0)
        return custom if within.all() else np.where(within, custom, library)

    def library_all_reduce(self, logical_bytes: Number, ranks: Number) -> Number:
        """Return the seconds of the library's all-reduce, as for training; between domains in a graph."""
        whole = self.forms.collective(
            "all-reduce", logical_bytes, ranks, np.minimum(ranks, self.forms.domain)
        )
        across = (np.asarray(ranks) > self.forms.domain) & (np.asarray(whole) > 0)
        return np.where(across, whole - self._launched_apart_s, whole)

    @property
    def has_multimem(self) -> bool:
        """True where a switch adds up what devices send, so that collectives take few of their processors."""
        generation = GENERATIONS.get(self.forms.kernels.family, "generic")
        return self.all_reduce_curve is not None and generation in MULTIMEM

    def exchange(self, kind: str, logical_bytes: Number, ranks: Number) -> Number:
        """Return the seconds of an all-gather, reduce-scatter or all-to-all of ``ranks``; 0 for one.

        Within a domain a kernel of a graph has the latency of one process; between domains it has none for processes
        that launch apart.
        """
        if np.all(np.asarray(ranks) == 1):
            return 0.0
        local = np.minimum(ranks, self.forms.domain)
        whole = self.forms.collective(kind, logical_bytes, ranks, local)
        saved = np.maximum(
            self.forms.over(kind, ranks, local).latency_s - self.constants["gather_latency_s"], 0.0
        )
        within = np.asarray(ranks) <= self.forms.domain
        return np.where(whole > 0, whole - np.where(within, saved, self._launched_apart_s), 0.0)

    @property
    def _launched_apart_s(self) -> float:
        """Extra seconds of a collective that every process launches by itself, over one of graphs."""
        apart = self.forms.constants["multi_process_latency_s"]
        return max(apart - self.constants["gather_latency_s"], 0.0)


def serving_times_for(pool: Pool) -> ServingTimes:
    """Return the forms of a pool for inference."""
    forms = hardware_times_for(pool, PLAIN)
    family = kernels(pool.device.id)
    switched = pool.node.scaleup_bytes_per_s >= LEAST_OF_LINK * family.measured_scaleup_bytes_per_s
    curve = all_reduce_curve(family.family) if switched else None
    return ServingTimes(forms, pool.device.peak_flops, serving_constants(), curve)
