"""Copies of activations to host memory and back: their durations, and their places in lists.

A device has a link to its host's memory with a direction out and a direction back, which overlap each other and
compute (``play/copy_streams.py``). A copy takes bytes / (efficiency · bandwidth). Ignored: that copies take a part of
the device's memory bandwidth (a fiftieth of it at PCIe's rates), the start of each copy, and devices that share a way
to the host: a cluster says what each of them has when all copy at once.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes
from meshwright.program.local_shape import Number
from meshwright.schedules.action import Action
from meshwright.schedules.activation_offload import OffloadedStages, with_offloads
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.stage_times import StageTimes

OFFLOAD = "offload"
"""The part of a step that waits for copies between devices and hosts; only plans that have such copies have it."""

Array = NDArray[np.float64]


def copy_seconds(copied_bytes: Number, forms: HardwareTimes) -> Number:
    """One direction of the link to the host."""
    assert forms.host_bytes_per_s, "plans that offload want a link to the host"
    return copied_bytes / (forms.constants["host_link_efficiency"] * forms.host_bytes_per_s)


class OffloadCopies(NamedTuple):
    """The offloaded stages of a schedule's lists, and the seconds of each one's copy, (n, K); 0 for the others."""

    copied: OffloadedStages
    seconds: Array

    def take(self, rows: NDArray[np.int64]) -> "OffloadCopies":
        """Return the plans at ``rows``."""
        return self._replace(seconds=self.seconds[rows])


def lists_with_offload_copies(
    schedule: ScheduleChoice,
    ranks: int,
    micro_batches: int,
    chunks: int,
    times: StageTimes | None,
    copied: OffloadedStages | None,
) -> list[list[Action]]:
    """Return a schedule's lists of passes, with copies where anything is copied."""
    lists = schedule.lists(ranks, micro_batches, chunks, times)
    return with_offloads(lists, copied) if copied else lists
