"""Create a cluster file from a measured machine: its hardware, and the cost-model constants that were fitted on it.

A cluster file cannot express everything. What it cannot express, and what the measurement leaves open, becomes a
finding: a sentence with the figure in it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import get_args

from meshwright.cluster.cluster import Cluster
from meshwright.cluster.cluster_to_file import dump_cluster
from meshwright.cluster.file_schema import CalibratedName
from meshwright.cluster.plausibility import implausible_figures
from meshwright.errors import InputError
from meshwright.ingestion.measured_cluster.hardware import checked_base, cluster_of, rounded
from meshwright.ingestion.measured_cluster.kernel_constants import KernelConstant, fit_kernels
from meshwright.ingestion.measured_cluster.node_links import node_links
from meshwright.ingestion.measured_cluster.step_jitter import measured_step_jitter
from meshwright.ingestion.nccl_tests.constant_fit import fit_collectives
from meshwright.ingestion.nccl_tests.fitted_values import FittedCollectives
from meshwright.ingestion.nccl_tests.table import Measurement
from meshwright.measurement.results import CollectiveTime, Results
from meshwright.units import MICROSECOND

CARRIED = frozenset(get_args(CalibratedName))
"""Constants that a cluster file can carry."""
FEW, LONGEST_SOURCE = 4, 2000
NAMES = {"send-recv": "send-receive"}


@dataclass(frozen=True, slots=True)
class MeasuredCluster:
    """The cluster, its file, the constants of its kernels, and findings about them."""

    cluster: Cluster
    text: str
    kernels: tuple[KernelConstant, ...]
    findings: tuple[str, ...]


def cluster_from(results: Results, base: Cluster | None = None) -> MeasuredCluster:
    """Return the measured cluster; ``base`` supplies what no measurement gives: size, cards, tiers, price.

    Raises InputError if several kinds of devices were measured, or the base is not the measured machine.
    """
    findings: list[str] = []
    cluster = checked_base(base, results, findings) if base else cluster_of(results, findings)
    kernels = fit_kernels(results, cluster)
    carried = fit_kernels(results, cluster, CARRIED)
    links = fit_links(results, cluster, findings)
    fitted = {c.name: c.value for c in carried if c.is_credible} | (links.calibration if links else {})
    calibration = dict(cluster.calibration) | {name: rounded(value) for name, value in fitted.items()}
    findings += [*_of_kernels(carried, kernels), *_of_links(links), *_of_launches(results)]
    findings += [*_of_doubts(cluster), *_of_time(results)]
    source = cluster.source if cluster.source == results.origin else f"{cluster.source}; {results.origin}"
    between = node_links(results, cluster, findings)
    constants = tuple(calibration.items())
    jitter = measured_step_jitter(results)
    cluster = replace(
        cluster,
        calibration=constants,
        links=between,
        step_jitter=cluster.step_jitter if jitter is None else jitter,
        source=source[-LONGEST_SOURCE:],
    )
    if jitter is not None:
        findings.append(
            f"step_jitter {jitter:.3g}, the devices' log-sigma of speed: a step waits for the slowest"
        )
    return MeasuredCluster(cluster, dump_cluster(cluster), kernels, tuple(findings))


def _of_kernels(carried: Sequence[KernelConstant], full: Sequence[KernelConstant]) -> Iterator[str]:
    for constant in (constant for constant in carried if constant.is_credible):
        kept = f"measured {constant.measured:.4g}, of which training keeps {constant.kept:.2f}"
        error = f"the form errs by {constant.error:.0%}"
        yield f"{constant.name} {constant.value:.4g} in place of {constant.present:.4g}: {kept}; {error}"
    others = [constant for constant in full if constant.name not in CARRIED]
    yield from _not_carried([(c.name, c.value, c.present) for c in others])
    for constant in {c.name: c for c in (*full, *carried)}.values():
        if not constant.is_credible:
            bound = ", at the bound of its range" if constant.at_bound else ""
            error = f"the form errs by {constant.error:.0%} with {constant.measured:.3g}{bound}"
            yield f"{constant.name} is not credible: {error}"


def _of_links(links: FittedCollectives | None) -> Iterator[str]:
    if links is None:
        return
    for value in links.values:
        yield f"{value.name} {value.value:.4g} in place of {value.present:.4g}: {value.what}"
    yield from links.remarks


def _not_carried(constants: Sequence[tuple[str, float, float]]) -> Iterator[str]:
    if constants:
        listed = "; ".join(f"{name} {value:.4g} ({present:.4g})" for name, value, present in constants)
        yield f"a cluster file can not carry these, so what is in brackets stays (SI units): {listed}"


def _of_launches(results: Results) -> Iterator[str]:
    """Yield the host time of a launch; the host time per layer belongs to the stack, by its number of launches."""
    for kernel in results.kernels:
        if kernel.kind == "launch" and results.machine.device_kind == "cuda":
            host = f"a launch keeps the host for {median(kernel.seconds) / MICROSECOND:.1f} µs"
            yield f"{host}: host_s_per_layer is that times a layer's launches, at least"


def _of_doubts(cluster: Cluster) -> Iterator[str]:
    yield from map(str, implausible_figures(cluster))


def _of_time(results: Results) -> Iterator[str]:
    if results.unfinished:
        shown = "; ".join(results.unfinished[:FEW])
        more = f"; … ({len(results.unfinished)} in all)" if len(results.unfinished) > FEW else ""
        yield f"not measured: {shown}{more}"


def fit_links(results: Results, cluster: Cluster, findings: list[str]) -> FittedCollectives | None:
    """Fit all sweeps in groups with equally many members on each host; return None if nothing is identified."""
    sweeps = [time for time in results.in_scope("part of node", "node", "nodes", "rail") if time.local]
    if not sweeps:
        return None
    try:
        return fit_collectives([_measurement(time) for time in sweeps], cluster)
    except InputError as error:
        findings += [f"no constant of collectives: {problem.rule}" for problem in error.problems]
        return None


def _measurement(time: CollectiveTime) -> Measurement:
    """Return the time as nccl-tests would report it, from one process per device."""
    rate = time.bytes / time.seconds
    return Measurement(
        collective=NAMES.get(time.kind, time.kind),
        ranks=time.ranks,
        nodes=time.nodes,
        processes=time.ranks,
        bytes=time.bytes,
        seconds=time.seconds,
        algbw_bytes_per_s=rate,
        busbw_bytes_per_s=rate,
        wrong=None,
        in_place=time.kind == "all-reduce",
        dtype="float",
        device="",
    )
