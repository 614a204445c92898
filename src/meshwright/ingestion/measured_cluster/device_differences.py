"""Compute ``step_jitter`` of a cluster file: the difference in speed between the devices of a measured machine.

A device's speed is its mean over all products, in the logarithm and relative to the median device, so that the spread
of single timings averages out. Processes that share the cores of a host differ by their scheduling, not by the device:
on a CPU nothing is concluded.
"""

from collections.abc import Iterator
from math import log
from statistics import mean, median, stdev

from meshwright.cluster.cluster import Cluster
from meshwright.measurement.results import Results

FEWEST_DEVICES = 4


def measured_step_jitter(results: Results) -> float | None:
    """Return the standard deviation of the logarithm of a device's time; None if too few devices tell it."""
    products = [kernel.seconds for kernel in results.kernels if kernel.kind == "matmul"]
    if results.machine.device_kind != "cuda" or results.machine.ranks < FEWEST_DEVICES or not products:
        return None
    return float(f"{stdev(mean(times) for times in zip(*map(_in_logarithms, products), strict=True)):.3g}")


def step_jitter_findings(cluster: Cluster) -> Iterator[str]:
    """Yield how much devices differ, if the cluster's file says it."""
    if cluster.step_jitter is not None:
        yield f"step_jitter {cluster.step_jitter:.3g}: so much devices differ, and a step waits for the slowest"


def _in_logarithms(seconds: tuple[float, ...]) -> list[float]:
    middle = median(seconds)
    return [log(time / middle) for time in seconds]
