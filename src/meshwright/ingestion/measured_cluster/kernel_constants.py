"""Fit the cost model's kernel constants to measured kernels, with the model's own formulas.

The formulas are in ``cost/operators/kernel_and_collective_times.py``.

    products    efficiency of arithmetic and memory, launch: gemm, bf16, exponent kept
    pass        share of the memory's rate: hbm_efficiency
    attention   efficiency by class, and of the backward pass relative to it; its launch kept
    layer       host time of a layer's forward: host_s_per_layer, from forward and backward together

A bare kernel is faster than the same kernel in a training step: clocks are lower under a whole step's power, caches
are cold, shapes are worse. Published runs tell how much of a bare measurement is left: the constant that was fitted to
them over the bare figure that was its prior. A measured constant is multiplied by that ratio, so that a machine whose
kernels take what the reference took keeps its constants. A family that no run has calibrated uses
``KEPT_OF_KERNELS``.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from meshwright.calibration.fitted_parameters import priors
from meshwright.cluster.cluster import Cluster
from meshwright.cost.constants import constants, kernels
from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes, hardware_times_for
from meshwright.ingestion.nccl_tests.least_squares import Floats, Solution, Unknown, solve
from meshwright.measurement.results import KernelKind, KernelTime, Results
from meshwright.stack.load import load_stack
from meshwright.stack.stack import OWN_STACK

KEPT_OF_KERNELS = 0.85
"""Fraction of a bare product's efficiency left in training, by the origins of ``calibration/priors.csv``."""
FEWEST = 4
CLASSES = {"flash": "flash", "cudnn": "flash3"}
"""The cost model's class of each attention kernel."""
BACKWARD, HBM = "attention_backward_efficiency", "hbm_efficiency"
HOST = "host_s_per_layer"
PRODUCTS = ("gemm_efficiency", "gemm_memory_efficiency", "gemm_launch_s")
BOUNDS = {"gemm_launch_s": (1e-8, 1e-1), HOST: (1e-7, 1.0), BACKWARD: (0.05, 5.0)}
EFFICIENCY_BOUNDS = (0.005, 3.0)
"""Bounds of efficiencies; above 1, because caches serve a part of the bytes that a formula counts as moved."""
AT_BOUND = 1e-3
LARGEST_ERROR = 0.5
"""A formula with a larger error does not describe the kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelConstant:
    """A constant: ``measured`` on bare kernels, the fraction that training keeps, and its present value.

    ``error`` is the mean absolute error of the fitted formula, as a fraction of the times;
    ``at_bound`` means that an impossible value would fit better.
    """

    name: str
    measured: float
    kept: float
    present: float
    unit: str
    error: float
    at_bound: bool

    @property
    def value(self) -> float:
        """The constant for the cost model."""
        return self.measured * self.kept

    @property
    def is_credible(self) -> bool:
        """True if the formula describes the kernels."""
        return not self.at_bound and self.error <= LARGEST_ERROR

    def to_json(self) -> dict[str, Any]:
        """Return the constant as JSON-ready data."""
        return asdict(self) | {"value": self.value}


def fit_kernels(
    results: Results, cluster: Cluster, names: Collection[str] | None = None
) -> tuple[KernelConstant, ...]:
    """Return the constants that the kernels identify; with ``names`` only those, with all others fixed."""
    fitting = _Fitting(cluster, names)
    fitting.products(_of(results, "matmul"))
    fitting.memory(_of(results, "pass"))
    fitting.attention(_of(results, "attention", "attention-step"))
    fitting.host(_of(results, "layer"))
    return tuple(fitting.found)


def training_fraction(name: str, device_id: str) -> float:
    """Return the fraction of a bare measurement of a constant that published runs reach."""
    if name in (HBM, BACKWARD):
        return constants()[name] / priors()[name].value
    if name in ("gemm_memory_efficiency", "gemm_launch_s", HOST):
        return 1.0
    prior = priors().get(f"{kernels(device_id).family}:{name}")
    return KEPT_OF_KERNELS * present_value(name, device_id) / prior.value if prior else KEPT_OF_KERNELS


def present_value(name: str, device_id: str) -> float:
    """Return the cost model's constant for a device; the host time is our own stack's."""
    if name == HOST:
        return load_stack(OWN_STACK).host_s_per_layer
    family = kernels(device_id)
    owner, _, key = name.partition(".")
    if key:
        return family.attention_efficiency[key]
    return float(getattr(family, owner)) if hasattr(family, owner) else constants()[owner]


class _Fitting:
    """Formulas whose constants are replaced by bare ones, fit by fit."""

    def __init__(self, cluster: Cluster, names: Collection[str] | None) -> None:
        self.cluster, self.names = cluster, names
        self.device_id = cluster.pool.device.id
        self.bare = {
            name: self.present(name) / training_fraction(name, self.device_id) for name in (HBM, BACKWARD)
        }
        self.found: list[KernelConstant] = []

    def present(self, name: str) -> float:
        return dict(self.cluster.calibration).get(name, present_value(name, self.device_id))

    def products(self, times: Sequence[KernelTime]) -> None:
        times = [time for time in times if time.dtype == "bf16"]
        m, k, n = (np.array([time.shape[at] for time in times], float) for at in range(3))
        self.fit(times, PRODUCTS, lambda forms: np.asarray(forms.gemm(m, k, n)))

    def memory(self, times: Sequence[KernelTime]) -> None:
        """Fit the pass; one size is enough for one constant."""
        moved = np.array([time.moved_bytes for time in times])
        self.fit(times, [HBM], lambda forms: np.asarray(forms.pass_(moved)), fewest=1)

    def attention(self, times: Sequence[KernelTime]) -> None:
        names = [f"attention_efficiency.{CLASSES[kind]}" for kind in sorted({time.kernel for time in times})]
        self.fit(
            times, [*names, BACKWARD], lambda forms: np.array([_attention_s(forms, time) for time in times])
        )

    def host(self, times: Sequence[KernelTime]) -> None:
        """Fit the host time of a layer; its backward pass takes a fixed multiple of its forward."""
        ratio = 1 + constants()["backward_host_ratio"]
        self.fit(times, [HOST], lambda forms: np.full(len(times), ratio * forms.constants[HOST]), fewest=1)

    def fit(
        self,
        times: Sequence[KernelTime],
        names: Sequence[str],
        seconds: Callable[[HardwareTimes], Floats],
        fewest: int = FEWEST,
    ) -> None:
        """Solve for those constants that are requested."""
        unknowns = {name: self.unknown(name) for name in names if self.names is None or name in self.names}
        if len(times) < fewest or not unknowns:
            return
        pool = self.cluster.pool
        measured = np.array([median(time.seconds) for time in times])

        def predicted(values: Mapping[str, float]) -> Floats:
            return seconds(
                hardware_times_for(pool, "bf16", {**dict(self.cluster.calibration), **self.bare, **values})
            )

        self.keep(solve(unknowns, predicted, measured))

    def unknown(self, name: str) -> Unknown:
        start = self.present(name) / training_fraction(name, self.device_id)
        low, high = BOUNDS.get(name, EFFICIENCY_BOUNDS)
        return Unknown(start, min(max(start, low), high), low, high)

    def keep(self, solution: Solution) -> None:
        self.bare |= solution.values
        error = float(np.abs(solution.errors).mean())
        for name in sorted(solution.identified):
            self.found.append(
                KernelConstant(
                    name=name,
                    measured=solution.values[name],
                    kept=training_fraction(name, self.device_id),
                    present=self.present(name),
                    unit="second" if name.endswith("_s") else "fraction of peak",
                    error=error,
                    at_bound=_is_at_bound(name, solution.values[name]),
                )
            )


def _of(results: Results, *kinds: KernelKind) -> list[KernelTime]:
    return [time for time in results.kernels if time.kind in kinds]


def _attention_s(forms: HardwareTimes, time: KernelTime) -> float:
    """Return seconds of causal attention, forward or forward and backward, as the cost model counts a layer's."""
    batch, heads, tokens, size = time.shape
    flops, moved = 2.0 * batch * heads * tokens**2 * size, 8.0 * batch * heads * tokens * size
    kernel, c = CLASSES[time.kernel], forms.constants
    forward = forms.flash(flops, moved, kernel)
    if time.kind == "attention":
        return float(forward)
    return float(forward + forms.flash(flops * c["attention_backward_flops"], 2 * moved, kernel, c[BACKWARD]))


def _is_at_bound(name: str, value: float) -> bool:
    low, high = BOUNDS.get(name, EFFICIENCY_BOUNDS)
    return not low * (1 + AT_BOUND) < value < high * (1 - AT_BOUND)
