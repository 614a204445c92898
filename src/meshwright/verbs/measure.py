"""Measure a machine, or read what nccl-tests and rccl-tests measured of it, as a cluster file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshwright.cluster.cluster_to_file import dump_cluster
from meshwright.cluster.load import load_cluster
from meshwright.errors import InputError, Problem

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """A cluster file and what should be known of it; ``raw`` are the measurements as JSON text, where we made them."""

    text: str
    findings: tuple[str, ...]
    odd: tuple[str, ...] = ()
    raw: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        return {"cluster": self.text, "findings": list(self.findings), "odd": list(self.odd)}


def measure_here(
    budget_s: float, processes: int | None, on: str | None, progress: Progress | None
) -> Measured | None:
    """Measure this machine, or the one that a launcher started us on; None on all ranks but the first."""
    from meshwright.ingestion.measured_cluster.cluster_file import cluster_from
    from meshwright.measurement.outliers import find_outliers, worst_host_pair

    base = load_cluster(on) if on else None
    results = _measure()(budget_s, processes, progress)
    if results is None:
        return None
    found = cluster_from(results, base)
    odd = [str(one) for one in find_outliers(results)]
    worst = worst_host_pair(results)
    if worst:
        time, slower = worst
        odd.append(f"the slowest pair of hosts ({time.group}) takes {slower:.0%} longer than the median")
    return Measured(found.text, found.findings, tuple(odd), results.to_text())


def _measure() -> Callable[..., Any]:
    try:
        from meshwright.measurement.measure_machine import measure
    except ImportError as missing:
        rule = f"needs {missing.name}, which is not installed"
        raise InputError(Problem("measure", missing.name, rule, "pip install 'meshwright[run]'")) from missing
    return measure


def from_collective_tests(paths: Sequence[str], on: str) -> Measured:
    """Constants of collectives and oversubscription of tiers, fitted to outputs of nccl-tests or rccl-tests.

    They are put into the cluster ``on``.
    """
    from meshwright.ingestion.nccl_tests.network_tiers import fit_network
    from meshwright.ingestion.nccl_tests.reader import read_nccl_tests

    cluster = load_cluster(on)
    tests = [read_nccl_tests(path) for path in paths]
    wrong = [problem for test in tests for problem in test.problems if problem.severity == "error"]
    if wrong:
        raise InputError(wrong)
    network = fit_network({path: test.records for path, test in zip(paths, tests, strict=True)}, cluster)
    fitted = network.collectives
    changed = tuple((dict(cluster.calibration) | dict(fitted.calibration)).items())
    doubts = [str(problem) for test in tests for problem in test.problems]
    values = [
        f"{value.name} {value.value:.4g} in place of {value.present:.4g}: {value.what}"
        for value in fitted.values
        if not value.at_bound
    ]
    measured = replace(cluster, calibration=changed, tiers=network.tiers)
    return Measured(dump_cluster(measured), (*values, *fitted.remarks, *network.remarks, *doubts))
