"""Exchanges of a spread vocabulary in a simulation: their times, and the rank time they take.

Each kind has a channel that carries one at a time. A sum begins when the last rank has entered it, a broadcast when its
sender has. Like a send each keeps a rank's compute stream for a part of its time: all of it where form or stack lets
nothing overlap it.
"""

from collections.abc import Sequence

from meshwright.cost.closed_form.overlap_and_optimizer import send_occupancy
from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes
from meshwright.cost.operators.pass_prices import Prices
from meshwright.program.pipeline_messages.all_rank_exchanges import Exchange, awaited_sum, exchange_of, sender
from meshwright.program.program import Program
from meshwright.schedules.action import Action, Kind
from meshwright.schedules.vocabulary import FORMS
from meshwright.simulate.simulation_result import Record


def exchange_occupancy(program: Program, forms: HardwareTimes) -> float:
    """Return the part of an exchange's time that blocks a rank's compute stream."""
    overlapped = program.vocabulary is not None and not FORMS[program.vocabulary].exposed
    return send_occupancy(overlapped, program.stack.overlap_p2p, forms)


class Exchanges:
    """The channels of all exchanges; ``records`` of every rank get what has run."""

    def __init__(self, program: Program, prices: Prices, records: Sequence[list[Record]]) -> None:
        self._program, self._prices, self._records = program, prices, records
        self._ways, self._placement = program.ways, tuple(stage.rank for stage in program.stages)
        self._occupancy = exchange_occupancy(program, prices.local.forms)
        self._entered: dict[Exchange, list[tuple[int, Action, float]]] = {}
        self._moved: dict[Exchange, tuple[float, float]] = {}
        self._channels: dict[Kind, float] = {}

    def ready(self, action: Action) -> float | None:
        """Return when the sum that a pass waits for is there; None if that is not known yet."""
        exchange = awaited_sum(action, self._ways)
        return 0.0 if exchange is None else self._moved.get(exchange, (0.0, None))[1]

    def enter(self, action: Action, rank: int, clock: float) -> float | None:
        """Return when a rank that enters at ``clock`` goes on; None while its broadcast has not come."""
        exchange, root = exchange_of(action), sender(action.kind, self._placement)
        seconds = float(self._prices.collectives(self._program.collectives[action.stage, action.kind]))
        if root in (None, rank):
            entered = self._entered.setdefault(exchange, [])
            entered.append((rank, action, clock))
            if root == rank or len(entered) == len(self._records):
                self._move(exchange, entered, seconds)
        elif exchange in self._moved:
            start, end = self._moved[exchange]
            clock = max(clock, end)
            self._records[rank].append(Record(action, start, end, "exchange"))
        else:
            return None
        return clock + self._occupancy * seconds

    def _move(self, exchange: Exchange, entered: Sequence[tuple[int, Action, float]], seconds: float) -> None:
        """All that an exchange waits for is there."""
        start = max(self._channels.get(exchange[0], 0.0), *(clock for _, _, clock in entered))
        end = self._channels[exchange[0]] = start + seconds
        self._moved[exchange] = start, end
        for rank, action, _ in entered:
            self._records[rank].append(Record(action, start, end, "exchange"))
