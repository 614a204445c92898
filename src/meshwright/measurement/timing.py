"""Time work on a device: median over repeats, and their robust deviation.

On a GPU by pairs of CUDA events around blocks of work, on a CPU by the clock. Short work is repeated inside a block
until that lasts a millisecond, so that neither clock is read at its limit; if processes share a core, until it
lasts several of the scheduler's time slices, so that those of other processes are counted. Caches are not emptied
between repeats, as they are not between the kernels of a step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from statistics import median
from time import perf_counter

import torch

from meshwright.measurement.outliers import robust_deviation

Work = Callable[[], object]

BLOCK_S, SHARED_BLOCK_S = 1e-3, 5e-2
MOST_IN_BLOCK = 200
FEWEST_BLOCKS, MOST_BLOCKS = 3, 50


@dataclass(frozen=True, slots=True)
class Timing:
    """Median seconds of one piece of work, robust deviation over blocks, and the number of repeats."""

    seconds: float
    spread_s: float
    repeats: int


def timed(work: Work, device: torch.device, budget_s: float, least_s: float = BLOCK_S) -> Timing:
    """Repeat ``work`` until the budget is spent, three blocks at least; the first two runs are not counted.

    A block lasts ``least_s`` or more, unless that takes more than ``MOST_IN_BLOCK`` repeats for each ``BLOCK_S`` of it.
    """
    began = perf_counter()
    block_s(work, device, 1)
    once = block_s(work, device, 1)
    size = min(ceil(MOST_IN_BLOCK * least_s / BLOCK_S), max(1, ceil(least_s / once)))
    blocks: list[float] = []
    while len(blocks) < FEWEST_BLOCKS or (len(blocks) < MOST_BLOCKS and perf_counter() - began < budget_s):
        blocks.append(block_s(work, device, size) / size)
    return Timing(median(blocks), robust_deviation(blocks), size * len(blocks))


def host_timed(work: Work, device: torch.device, budget_s: float) -> Timing:
    """Return the seconds for which ``work`` occupies the host, whatever the device does meanwhile."""
    began = perf_counter()
    work()
    blocks: list[float] = []
    while len(blocks) < FEWEST_BLOCKS or (len(blocks) < MOST_BLOCKS and perf_counter() - began < budget_s):
        synchronise(device)
        start = perf_counter()
        for _ in range(MOST_IN_BLOCK):
            work()
        blocks.append((perf_counter() - start) / MOST_IN_BLOCK)
    synchronise(device)
    return Timing(median(blocks), robust_deviation(blocks), MOST_IN_BLOCK * len(blocks))


def block_s(work: Work, device: torch.device, times: int, wait: Work | None = None) -> float:
    """Return the device's seconds for running ``work`` so many times in a row.

    ``wait`` returns when a GPU has finished; without it, torch waits for ever.
    """
    if device.type == "cuda":
        return _events_s(work, times, wait)
    start = perf_counter()
    for _ in range(times):
        work()
    return max(perf_counter() - start, 1e-9)


def synchronise(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _events_s(work: Work, times: int, wait: Work | None) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(times):
        work()
    end.record()
    (wait or end.synchronize)()
    return max(begin.elapsed_time(end) * 1e-3, 1e-9)
