"""Copies of activations to host memory and back in simulated action lists: duration, position, overlap.

A device has a link to its host's memory with a direction out and a direction back, which overlap each other and
compute; a direction carries one copy at a time, in the order of the list. A copy takes bytes / (efficiency ·
bandwidth). The copy out begins when compute comes to it, and neither the pass behind the next one nor a copy back there
begins before its end; the copy back begins when compute comes to it, and the backward pass waits for its end
(``schedules/activation_offload.py``). Ignored: that copies take a part of the device's memory bandwidth (a fiftieth
of it at PCIe's rates), the start of each copy, and devices that share a way to the host: a cluster says what each of
them has when all copy at once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes
from meshwright.program.local_shape import Number
from meshwright.schedules.action import PASS_KINDS, Action, ActionLists
from meshwright.schedules.activation_offload import COPIES, OffloadedStages, with_offloads
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.execution_order import Step
from meshwright.schedules.stage_times import StageTimes

OFFLOAD = "offload"
"""The part of a step that waits for copies between devices and hosts; only plans that have such copies have it."""

Array = NDArray[np.float64]
Operation = Callable[[Any, Any], Any]


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


@dataclass
class CopyStreams:
    """Both directions of all ranks' links while lists are played; times are floats or arrays.

    ``leaving`` is when the copy ends that began last, ``due`` when all ended that the next pass must wait for.
    """

    ranks: int
    zero: Any
    larger: Operation
    free: dict[str, list[Any]] = field(init=False)
    leaving: list[Any] = field(init=False)
    due: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.free = {kind: [self.zero] * self.ranks for kind in COPIES}
        self.leaving, self.due = ([self.zero] * self.ranks for _ in range(2))

    def copy(self, kind: str, rank: int, clock: Any, seconds: Any) -> Any:
        """Begin a copy when compute is at ``clock``; its end."""
        free = self.larger(self.free[kind][rank], self.due[rank])
        end = self.free[kind][rank] = self.larger(clock, free) + seconds
        if kind == "OFFLOAD":
            self.leaving[rank] = end
        return end

    def before_pass(self, rank: int, clock: Any) -> Any:
        """Return when a pass may begin: after the copies out that began before the last pass."""
        start = self.larger(clock, self.due[rank])
        self.due[rank] = self.leaving[rank]
        return start


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


def with_copies(steps: Sequence[Step], lists: ActionLists) -> Iterator[Step]:
    """Yield the passes with the lists' copies in between; a backward pass also needs its copy back."""
    todo = [iter(actions) for actions in lists]
    place: list[int] = []
    back: dict[tuple[int | None, int | None], int] = {}
    number = 0
    for step in steps:
        needed = tuple((place[source], crosses) for source, crosses in step.sources)
        reload = None
        for action in _up_to_pass(todo[step.rank]) if step.kind in PASS_KINDS else ():
            which = action.stage, action.micro_batch
            if action.kind not in COPIES:
                reload = back.pop(which, None) if action.kind in ("B", "I") else None
                continue
            if action.kind == "RELOAD":
                back[which] = number
            assert action.stage is not None
            yield Step(action.stage, step.rank, action.kind, ())
            number += 1
        place.append(number)
        yield step._replace(sources=needed, reload=reload)
        number += 1


def _up_to_pass(actions: Iterator[Action]) -> Iterator[Action]:
    """Yield the copies before the next pass, then that pass."""
    for action in actions:
        yield action
        if action.kind not in COPIES:
            return
