"""Fit the cost model's collective constants to measured collectives, with the fit used for nccl-tests."""

from meshwright.cluster.cluster import Cluster
from meshwright.errors import InputError
from meshwright.ingestion.nccl_tests.constant_fit import fit_collectives
from meshwright.ingestion.nccl_tests.fitted_values import FittedCollectives
from meshwright.ingestion.nccl_tests.table import Measurement
from meshwright.measurement.results import CollectiveTime, Results

NAMES = {"send-recv": "send-receive"}


def fit_links(results: Results, cluster: Cluster, findings: list[str]) -> FittedCollectives | None:
    """Fit all sweeps in groups with equally many members on each host; return None if nothing is identified."""
    sweeps = [time for time in results.in_scope("node", "nodes", "rail") if time.local]
    if not sweeps:
        return None
    try:
        return fit_collectives([_measurement(time, results) for time in sweeps], cluster)
    except InputError as error:
        findings += [f"no constant of collectives: {problem.rule}" for problem in error.problems]
        return None


def _measurement(time: CollectiveTime, results: Results) -> Measurement:
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
