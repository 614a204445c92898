"""Compute ``step_jitter`` of a cluster file from the speeds of a measured machine's devices.

A device's speed is its mean over all products, in the logarithm and relative to the median device, so that the spread
of single timings averages out. Processes that share the cores of a host differ by their scheduling, not by the device:
on a CPU nothing is concluded.
"""

from math import log
from statistics import mean, median, stdev

from meshwright.measurement.results import Results

FEWEST_DEVICES = 4


def measured_step_jitter(results: Results) -> float | None:
    """Return the standard deviation of the logarithm of a device's time; None if too few devices tell it."""
    products = [kernel.seconds for kernel in results.kernels if kernel.kind == "matmul"]
    if results.machine.device_kind != "cuda" or results.machine.ranks < FEWEST_DEVICES or not products:
        return None
    return float(f"{stdev(mean(times) for times in zip(*map(_in_logarithms, products), strict=True)):.3g}")


def _in_logarithms(seconds: tuple[float, ...]) -> list[float]:
    middle = median(seconds)
    return [log(time / middle) for time in seconds]
