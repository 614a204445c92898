"""Copies of activations to host memory and back in a simulation: their times and the passes that wait for them."""

from collections.abc import Sequence

from meshwright.cost.operators.pass_prices import Prices
from meshwright.cost.pipeline_time.offload_copy_streams import CopyStreams, copy_seconds
from meshwright.program.program import Program
from meshwright.schedules.action import Action
from meshwright.simulate.simulation_result import Record


class HostCopies:
    """The ways of all ranks to their hosts; ``records`` of every rank get what has run."""

    def __init__(self, program: Program, prices: Prices, records: Sequence[list[Record]]) -> None:
        self._program, self._forms, self._records = program, prices.local.forms, records
        self._streams = CopyStreams(len(program.lists), 0.0, max)
        self._back: dict[tuple[int | None, int | None], float] = {}

    def begin(self, action: Action, rank: int, clock: float) -> None:
        """Begin a copy when a rank's compute is at ``clock``."""
        assert action.stage is not None
        seconds = float(copy_seconds(self._program.offloaded_bytes[action.stage], self._forms))
        end = self._streams.copy(action.kind, rank, clock, seconds)
        if action.kind == "RELOAD":
            self._back[action.stage, action.micro_batch] = end
        self._records[rank].append(Record(action, end - seconds, end, "host"))

    def before_pass(self, action: Action, rank: int, clock: float) -> float:
        """Return when a pass begins that could at ``clock``: after its copy back, and after earlier copies out."""
        needed = self._back.get((action.stage, action.micro_batch), 0.0) if action.kind in ("B", "I") else 0.0
        return float(self._streams.before_pass(rank, max(clock, needed)))
