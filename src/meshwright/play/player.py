"""Play lists of actions with durations that are floats, or arrays over many plans.

A rank has one compute stream. A step begins when the rank's last one has ended and when what it needs is there; a pass
keeps the rank for its duration. All other kinds of steps have a handler, which may keep the rank or use a stream of its
own: gathers and reductions (``data_parallel_streams.py``), copies to the host and back (``copy_streams.py``), messages
and barriers (``messages_and_barriers.py``).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshwright.play.clocks import Clocks
from meshwright.play.copy_streams import CopyStreams
from meshwright.play.data_parallel_streams import EXCHANGES, DataParallelStreams
from meshwright.play.execution_order import Step
from meshwright.schedules.action import SUMS
from meshwright.schedules.activation_offload import COPIES

Handler = Callable[[Step, Any], tuple[Any, Any]]
"""(step, when its rank comes to it) → its begin and end."""


class Player:
    """Plays steps on the clocks of all ranks.

    ``seconds`` are the durations of passes by kind, then by stage; ``waits`` those from the end of a pass to where what
    it brings is there, by what brings it.
    """

    def __init__(
        self,
        clocks: Clocks,
        seconds: Mapping[str, Any],
        waits: Mapping[str, Any],
        exchanges: DataParallelStreams | None = None,
        copies: CopyStreams | None = None,
    ) -> None:
        self.clocks, self.seconds, self.waits = clocks, seconds, waits
        self.exchanges, self.copies = exchanges, copies
        self.handlers: dict[str, Handler] = dict.fromkeys(SUMS, self._sum_up)
        if exchanges is not None:
            self.handlers |= dict.fromkeys(EXCHANGES, exchanges.exchange)
        if copies is not None:
            self.handlers |= dict.fromkeys(COPIES, copies.copy)

    def play(self, steps: Sequence[Step]) -> None:
        """Play all lists from their beginning, in an order of their steps."""
        clocks, seconds, waits, handlers = self.clocks, self.seconds, self.waits, self.handlers
        starts: list[Any] = []
        ends: list[Any] = []
        clocks.starts, clocks.ends = starts, ends
        free, lasted, larger, exchanges = clocks.free, clocks.lasted, clocks.numbers.larger, self.exchanges
        before_pass = None if self.copies is None else self.copies.before_pass
        slowed = None if exchanges is None or exchanges.blocks is not None else exchanges.slowed
        for step in steps:
            stage, rank, kind, needed, gather = step
            start = free[rank]
            for source, brings in needed:
                start = larger(start, ends[source] if brings is None else ends[source] + waits[brings])
            if kind in handlers:
                start, end = handlers[kind](step, start)
                starts.append(start)
                ends.append(end)
                continue
            took = seconds[kind][stage]
            if before_pass is not None:
                start = before_pass(rank, start)
            if gather is not None and exchanges is not None:
                start, took = exchanges.behind_gather(ends[gather], start, took)
            if slowed is not None:
                took = slowed(rank, start, took)
            starts.append(start)
            lasted[rank] = took
            free[rank] = end = start + took
            ends.append(end)

    def ends_of_ranks(self) -> list[Any]:
        """Return when each rank has ended its list, and what its data-parallel stream has."""
        free = self.clocks.free[: self.clocks.ranks]
        if self.exchanges is None:
            return free
        return list(map(self.clocks.numbers.larger, free, self.exchanges.free))

    def _sum_up(self, step: Step, start: Any) -> tuple[Any, Any]:
        """Run a sum over ranks whose last part is there; it comes to all of them at once."""
        return start, start + self.waits[step[2]]
