"""Time the copies of activations to host memory and back; each direction of a rank's link carries one at a time.

A copy begins when compute comes to it in the list. Neither the pass behind the next one nor a copy back there begins
before a copy out has ended; the backward pass waits for its copy back (``schedules/activation_offload.py``).
"""

from collections.abc import Sequence
from typing import Any

from meshwright.play.clocks import Clocks
from meshwright.play.execution_order import Step
from meshwright.schedules.activation_offload import COPIES


class CopyStreams:
    """Both directions of all ranks' links to their hosts; ``seconds`` are those of a copy of each stage.

    ``leaving`` is when the copy out ends that began last, ``due`` when all ended that the next pass must wait for.
    """

    def __init__(self, clocks: Clocks, seconds: Sequence[Any]) -> None:
        ranks, zero = clocks.ranks, clocks.numbers.zero
        self._seconds, self._larger = seconds, clocks.numbers.larger
        self._free: dict[str, list[Any]] = {kind: [zero] * ranks for kind in COPIES}
        self._leaving, self._due = ([zero] * ranks for _ in range(2))

    def copy(self, step: Step, start: Any) -> tuple[Any, Any]:
        """Begin a copy when compute comes to it; return its begin and end."""
        stage, rank, kind, _, _ = step
        free, larger = self._free[kind], self._larger
        start = larger(start, larger(free[rank], self._due[rank]))
        end = free[rank] = start + self._seconds[stage]
        if kind == "OFFLOAD":
            self._leaving[rank] = end
        return start, end

    def before_pass(self, rank: int, start: Any) -> Any:
        """Return when a pass may begin: after the copies out that began before the last pass."""
        start = self._larger(start, self._due[rank])
        self._due[rank] = self._leaving[rank]
        return start
