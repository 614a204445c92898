"""Streams of per-step gathers and reductions of states during a played schedule, as in ``simulate/simulator.py``.

Before the first pass a rank gathers the parameters of its parts, its share of the vocabulary before its stages; the
first pass over a part waits for what is left of its own gather. Behind the last pass over a part its gradients are
reduced, begun inside that pass, which is slowed down; one reduction follows the other. If the stack does not overlap
them, gathers come before all passes and reductions behind all.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.closed_form.overlap_and_optimizer import during_gather, reduction_slowdown
from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes
from meshwright.schedules.action import MAKE_GRADIENTS
from meshwright.schedules.execution_order import Step

Array = NDArray[np.float64]


class StateExchanges(NamedTuple):
    """Seconds of each part's gather and reduction, for shares of the vocabulary behind the stages: (n, K + P).

    ``units`` are the blocks of each part; ``ranks`` says where each part is, ``order`` in which a rank gathers,
    ``overlapped`` whether gathers and reductions have a stream of their own. While the schedule is simulated, gathers
    and reductions are sequences of K + P.
    """

    gathers: Any
    reductions: Any
    units: Sequence[int]
    ranks: Sequence[int]
    order: Sequence[int]
    overlapped: tuple[bool, bool]
    forms: HardwareTimes

    def row(self, row: int) -> "StateExchanges":
        """One plan, as floats."""
        return self._replace(gathers=self.gathers[row].tolist(), reductions=self.reductions[row].tolist())

    def columns(self, rows: NDArray[np.int64]) -> "StateExchanges":
        """Return the plans at ``rows``, one array for each part."""
        return self._replace(gathers=list(self.gathers[rows].T), reductions=list(self.reductions[rows].T))


class StateStream:
    """The streams of all ranks while one schedule is played."""

    def __init__(self, states: StateExchanges, steps: Sequence[Step], zero: Any) -> None:
        self._states = states
        self._clock = [zero] * (max(states.ranks) + 1)
        self._gathered: dict[int, Any] = {}
        self._last: Mapping[int, int] = {
            step.stage: index for index, step in enumerate(steps) if step.kind in MAKE_GRADIENTS
        }
        for part in states.order:
            rank = states.ranks[part]
            self._clock[rank] = self._clock[rank] + states.gathers[part]
            self._gathered[part] = self._clock[rank]

    def start(self, rank: int) -> Any:
        """Return when a rank may begin its first pass."""
        return 0 * self._clock[rank] if self._states.overlapped[0] else self._clock[rank]

    def duration(self, step: Step, start: Any, duration: Any) -> Any:
        """Return the duration of a pass, longer if it is the first one over its part."""
        if step.stage not in self._gathered or not self._states.overlapped[0]:
            return duration
        left = np.maximum(0.0, self._gathered.pop(step.stage) - start)
        return during_gather(duration, left, self._states.forms)

    def slowdown(self, index: int, step: Step, start: Any, duration: Any) -> Any:
        """Return the seconds by which a pass is slowed down, if it is the last one over its part."""
        part, states = step.stage, self._states
        if self._last.get(part) != index or not states.overlapped[1]:
            return 0.0
        seconds, units = states.reductions[part], states.units[part]
        more = reduction_slowdown(seconds, duration, units, states.forms)
        begin = np.maximum(self._clock[step.rank], start + duration / units)
        self._clock[step.rank] = np.maximum(begin + seconds, start + duration + more + seconds / units)
        return more

    def end(self, rank: int, clock: Any) -> Any:
        """Return when a rank is done if its last pass ended at ``clock``."""
        both = np.maximum(clock, self._clock[rank])
        if self._states.overlapped[1]:
            return both
        mine = (part for part, at in enumerate(self._states.ranks) if at == rank)
        return both + sum(self._states.reductions[part] for part in mine)
