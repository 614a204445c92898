"""Time the gathers and reductions of states on the data-parallel streams of all ranks; times are floats or arrays.

A stream carries one exchange at a time. An exchange that does not overlap compute keeps its rank, too. Of the others

- a gather begins when compute comes to it; the first pass of its stage overlaps what is left of it and gets longer, or
  begins behind it where states are exchanged unit by unit;
- a reduction of a unit waits for the one before it, and all passes beside an exchange get longer;
- a reduction once a step begins inside the pass that it stands behind, and makes that longer.

In arrays an exchange that takes a plan no time is none there, and waits for nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from meshwright.play.clocks import Clocks
from meshwright.play.execution_order import Step
from meshwright.play.overlap import during_exchange, during_gather, reduction_slowdown, reduction_tail

EXCHANGES = ("GATHER", "REDUCE")


class DataParallelStreams:
    """The streams of all ranks. ``seconds`` are those of each exchange, by kind and stage.

    ``blocks`` are the numbers of blocks of the stages; None if states are exchanged unit by unit. ``free`` is when each
    stream ends what it has, ``reduced`` when its last reduction ends. ``own_end`` is where passes end that reductions
    made longer, without that.
    """

    def __init__(
        self,
        clocks: Clocks,
        seconds: Mapping[str, Any],
        overlapped: Collection[str],
        slowdown: Any,
        blocks: Sequence[int] | None = None,
    ) -> None:
        self._clocks, self._seconds, self._overlapped = clocks, seconds, overlapped
        self._numbers, self._slowdown, self.blocks = clocks.numbers, slowdown, blocks
        self.free: list[Any] = [clocks.numbers.zero] * clocks.ranks
        self.reduced: list[Any] = [clocks.numbers.zero] * clocks.ranks
        self.own_end: dict[int, Any] = {}

    def exchange(self, step: Step, start: Any) -> tuple[Any, Any]:
        """Run a GATHER or REDUCE; return its begin and end."""
        stage, rank, kind, _, _ = step
        seconds, larger = self._seconds[kind][stage], self._numbers.larger
        overlaps, reduces = kind in self._overlapped, kind == "REDUCE"
        if reduces and overlaps and self.blocks is not None:
            return self._behind_pass(step, seconds, self.blocks[stage])
        takes_part = seconds > 0
        if reduces:
            self._clocks.free[rank] = start = larger(start, takes_part * self.reduced[rank])
        start = larger(start, takes_part * self.free[rank])
        end = start + seconds
        self.free[rank] = larger(self.free[rank], end)
        if reduces:
            self.reduced[rank] = larger(self.reduced[rank], end)
        if not overlaps:
            self._clocks.free[rank] = end
        return start, end

    def behind_gather(self, gathered: Any, start: Any, seconds: Any) -> tuple[Any, Any]:
        """Return begin and length of a pass that needs what a gather brings at its end."""
        if self.blocks is None:
            return self._numbers.larger(start, gathered), seconds
        left = self._numbers.larger(gathered - start, self._numbers.zero)
        return start, during_gather(seconds, left, self._slowdown, self._numbers)

    def slowed(self, rank: int, start: Any, seconds: Any) -> Any:
        """Return the length of a pass that overlaps what its rank's stream still has."""
        left = self._numbers.larger(self.free[rank] - start, self._numbers.zero)
        return during_exchange(seconds, left, self._slowdown, self._numbers)

    def _behind_pass(self, step: Step, seconds: Any, blocks: int) -> tuple[Any, Any]:
        """Run a reduction that overlaps the last pass, and make that pass longer."""
        clocks, rank, (last, _) = self._clocks, step.rank, step.sources[-1]
        duration, larger = clocks.lasted[rank], self._numbers.larger
        self.own_end[last] = clocks.ends[last]
        more = reduction_slowdown(seconds, duration, blocks, self._slowdown, self._numbers)
        clocks.free[rank] = clocks.ends[last] = ended = clocks.free[rank] + more
        began = clocks.starts[last]
        tail = reduction_tail(
            seconds, duration, duration + more, blocks, self.free[rank] - began, self._numbers
        )
        start = larger(self.free[rank], began + duration / blocks)
        end = self.free[rank] = ended + tail
        return start, end
