"""Time the messages, sums, broadcasts and barriers between ranks, where they are actions of the lists.

To each other rank and in each direction there is a link that carries one message at a time; a message keeps its sender
for a part of its time. Each kind of exchange between all ranks has a channel that carries one at a time: a sum begins
when the last rank has entered it, a broadcast when its sender has. An exchange keeps every rank for a part of its time,
too. At a barrier ranks wait for each other, and for what their data-parallel streams have.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from meshwright.play.clocks import Clocks
from meshwright.play.execution_order import NOBODY, Step


class Links:
    """The links between ranks. ``seconds`` are those of messages by kind and stage, ``occupancy`` what a send keeps.

    ``targets`` has the receiving rank of every message by kind and stage.
    """

    def __init__(
        self, clocks: Clocks, seconds: Mapping[Any, Any], occupancy: float, targets: Mapping[Any, int]
    ) -> None:
        self._clocks, self._seconds, self._occupancy, self._targets = clocks, seconds, occupancy, targets
        self._free: dict[tuple[int, int], Any] = {}

    def send(self, step: Step, start: Any) -> tuple[Any, Any]:
        """Begin a message when its link is free; it ends when it arrives."""
        rank, seconds = step.rank, self._seconds[step.kind, step.stage]
        link = rank, self._targets[step.kind, step.stage]
        start = self._clocks.numbers.larger(self._free.get(link, self._clocks.numbers.zero), start)
        end = self._free[link] = start + seconds
        self._clocks.free[rank] = start + self._occupancy * seconds
        return start, end

    def receive(self, step: Step, start: Any) -> tuple[Any, Any]:
        """Wait for a message."""
        self._clocks.free[step.rank] = start
        return start, start


class Rendezvous:
    """Channels and barriers. ``seconds`` are those of exchanges by kind and stage.

    ``occupancy`` is the part of its time for which an exchange keeps each rank. ``streams`` are when the data-parallel
    streams of ranks are free; ``steps`` the order that is played.
    """

    def __init__(
        self,
        clocks: Clocks,
        seconds: Mapping[str, Mapping[int, Any]],
        occupancy: float,
        streams: Sequence[Any],
        steps: Sequence[Step],
    ) -> None:
        self._clocks, self._seconds, self._occupancy = clocks, seconds, occupancy
        self._streams, self._steps = streams, steps
        self._channels: dict[str, Any] = {}

    def add_up(self, step: Step, start: Any) -> tuple[Any, Any]:
        """Enter a sum over ranks, or run it when the last rank has entered it."""
        if step.rank == NOBODY:
            return self._on_channel(self._steps[step.sources[0][0]], start)
        self._keep(step, start)
        return start, start

    def broadcast(self, step: Step, start: Any) -> tuple[Any, Any]:
        """Send to all ranks, or wait for what comes."""
        self._keep(step, start)
        return (start, start) if step.sources else self._on_channel(step, start)

    def barrier(self, step: Step, start: Any) -> tuple[Any, Any]:
        """Come to a barrier, or run what all ranks do that have come there."""
        if step.rank == NOBODY:
            first = self._steps[step.sources[0][0]]
            return start, start + self._seconds[first.kind][first.stage]
        return start, self._clocks.numbers.larger(start, self._streams[step.rank])

    def _on_channel(self, step: Step, start: Any) -> tuple[Any, Any]:
        start = self._clocks.numbers.larger(self._channels.get(step.kind, self._clocks.numbers.zero), start)
        end = self._channels[step.kind] = start + self._seconds[step.kind][step.stage]
        return start, end

    def _keep(self, step: Step, start: Any) -> None:
        self._clocks.free[step.rank] = start + self._occupancy * self._seconds[step.kind][step.stage]
