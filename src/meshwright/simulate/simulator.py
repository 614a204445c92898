"""Simulate a Program: start and end of every action, waits between ranks.

Every pipeline rank has a compute stream, a data-parallel stream and, to each neighbour and in each direction, a link;
exchanges of a spread vocabulary and copies to the host have channels of their own. ``play/`` has their rules, in which
actions run in list order; ``program_order.py`` says what they need of others. Simulated times are
predictions, not measurements.

Where steps are validated afterwards NORM is a matter of one rank, and sums go on as messages that keep nobody. Then
ranks end their steps at unlike times, and some steps are played one behind the other: what counts is the last one, by
how much later it ends than the one before. No step is a wrong one.
"""

from collections.abc import Iterator

from meshwright.cost.closed_form.overlap_and_optimizer import send_occupancy
from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes
from meshwright.cost.operators.pass_prices import Prices, message_seconds, total
from meshwright.cost.operators.program_passes import (
    message_times,
    pass_parts,
    rank_perturbation_seconds,
    rank_step_seconds,
)
from meshwright.cost.pipeline_time.offload_copies import copy_seconds
from meshwright.play.clocks import FLOATS, Clocks
from meshwright.play.copy_streams import CopyStreams
from meshwright.play.data_parallel_streams import DataParallelStreams
from meshwright.play.execution_order import NOBODY, UNTIMED, Step
from meshwright.play.messages_and_barriers import Links, Rendezvous
from meshwright.play.player import Player
from meshwright.program.lowering.optimizer_post_validation import STEADY_STEPS
from meshwright.program.lowering.step_collectives import NORM_BYTES
from meshwright.program.program import Program
from meshwright.schedules.action import (
    BROADCASTS,
    EXCHANGES,
    PASS_KINDS,
    RECEIVES,
    SENDS,
    SUM_RECEIVES,
    SUM_SENDS,
    SUMS,
    Action,
)
from meshwright.schedules.activation_offload import COPIES
from meshwright.schedules.vocabulary import FORMS
from meshwright.simulate.program_order import barriers_of, program_order
from meshwright.simulate.simulation_result import Record, Simulation

STREAMS: dict[str, str] = {
    **dict.fromkeys((*PASS_KINDS, "PERTURB", "STEP", "NORM", "REDUCE_TIED"), "compute"),
    **dict.fromkeys(("GATHER", "REDUCE", "REDUCE_MIRRORED"), "data-parallel"),
    **dict.fromkeys(SENDS, "send"),
    **dict.fromkeys(EXCHANGES, "exchange"),
    **dict.fromkeys(COPIES, "host"),
}
"""The stream of every kind of action that is recorded once."""


def simulate(program: Program, prices: Prices) -> Simulation:
    """Play one step of the Program. Times in seconds from the start of the step."""
    step = _PlayedStep(program, prices)
    step.play()
    if not program.steps_overlap:
        return Simulation(tuple(map(tuple, step.records)))
    for _ in range(STEADY_STEPS - 1):
        before = step.end
        step.play()
    first = min(record.start for records in step.records for record in records)
    return Simulation(
        tuple(tuple(record.earlier(first) for record in records) for records in step.records),
        step.end - before,
    )


def message_occupancy(program: Program, forms: HardwareTimes) -> float:
    """Return the part of a message's time that blocks the sender's compute stream, for a Program."""
    several_passes = program.split or len(program.stages) > len(program.lists)
    return send_occupancy(several_passes, program.stack.overlap_p2p, forms)


def exchange_occupancy(program: Program, forms: HardwareTimes) -> float:
    """Return the part of the time of a spread vocabulary's exchange that blocks a rank's compute stream.

    It is all of it where form or stack lets nothing overlap it.
    """
    overlapped = program.vocabulary is not None and not FORMS[program.vocabulary].exposed
    return send_occupancy(overlapped, program.stack.overlap_p2p, forms)


class _PlayedStep:
    """A Program's lists with the clocks on which they are played, one step behind the other."""

    def __init__(self, program: Program, prices: Prices) -> None:
        self.program, self.prices, forms = program, prices, prices.local.forms
        self.steps, self.clocks = program_order(program), Clocks(program.pipeline_ranks, FLOATS)
        self.barriers = barriers_of(program)
        self.records: list[list[Record]] = []
        passes: dict[str, dict[int, float]] = {}
        for (stage, kind), parts in pass_parts(program, prices).items():
            passes.setdefault(kind, {})[stage] = float(total(parts))
        self.seconds = exchanged = _exchange_seconds(program, prices)
        self.exchanges = DataParallelStreams(
            self.clocks,
            exchanged,
            program.overlapped,
            forms.constants["overlap_slowdown"],
            None if program.parts.by_unit else [len(section.blocks) for section in program.sections],
        )
        copies = None
        if any(program.offloaded_bytes):
            copied = [float(copy_seconds(size, forms)) if size else 0.0 for size in program.offloaded_bytes]
            copies = CopyStreams(self.clocks, copied)
        self.player = Player(self.clocks, passes, {}, self.exchanges, copies)
        self._handle_messages(forms)
        self._handle_barriers(forms)
        self.player.handlers |= {"PERTURB": self._compute, "STEP": self._compute}

    def _handle_messages(self, forms: HardwareTimes) -> None:
        program = self.program
        placement = [stage.rank for stage in program.stages]
        times = message_times(program, self.prices)
        targets = {(k, s): placement[s + (1 if k == "SEND_F" else -1)] for k, s in times if s is not None}
        links = Links(self.clocks, times, message_occupancy(program, forms), targets)
        sums = float(message_seconds(self.prices.mesh, forms, NORM_BYTES))
        self.player.handlers |= {
            **dict.fromkeys(SENDS, links.send),
            **dict.fromkeys((*RECEIVES, *SUM_RECEIVES), links.receive),
            **dict.fromkeys(SUM_SENDS, lambda step, start: (start, start + sums)),
        }

    def _handle_barriers(self, forms: HardwareTimes) -> None:
        occupancy = exchange_occupancy(self.program, forms)
        meetings = Rendezvous(self.clocks, self.seconds, occupancy, self.exchanges.free, self.steps)
        self.player.handlers |= {
            "NORM": self._norm,
            **dict.fromkeys(SUMS, meetings.add_up),
            **dict.fromkeys(BROADCASTS, meetings.broadcast),
            **dict.fromkeys(self.barriers, meetings.barrier),
        }

    @property
    def end(self) -> float:
        """Return when everything has ended that is recorded."""
        return max((record.end for records in self.records for record in records), default=0.0)

    def play(self) -> None:
        """Play the lists from their beginning, on ranks and links that are free when they are."""
        self.player.play(self.steps)
        self.records = [[] for _ in self.program.lists]
        todo = [iter([a for a in actions if a.kind not in UNTIMED]) for actions in self.program.lists]
        met = {at: place for place, s in enumerate(self.steps) if s.rank == NOBODY for at, _ in s.sources}
        for place, step in enumerate(self.steps):
            if step.rank != NOBODY:
                records = self._recorded(next(todo[step.rank]), step, met.get(place, place))
                self.records[step.rank] += records

    def _recorded(self, action: Action, step: Step, place: int) -> Iterator[Record]:
        """Yield the records of an action that is timed at a place."""
        starts, ends, kind = self.clocks.starts, self.clocks.ends, action.kind
        if kind in STREAMS and (kind != "NORM" or NOBODY in self.seconds["NORM"]):
            if kind in BROADCASTS and step.sources:
                place = step.sources[0][0]
            end = self.exchanges.own_end.get(place, ends[place])
            yield Record(action, starts[place], end, STREAMS[kind])

    def _compute(self, step: Step, start: float) -> tuple[float, float]:
        """PERTURB and STEP: keep the rank for a pass over its parameters."""
        of = rank_step_seconds if step.kind == "STEP" else rank_perturbation_seconds
        end = self.clocks.free[step.rank] = start + of(self.program, self.prices, step.rank)
        return start, end

    def _norm(self, step: Step, start: float) -> tuple[float, float]:
        """NORM of one rank: wait for its reductions."""
        start = max(start, self.exchanges.free[step.rank])
        end = self.clocks.free[step.rank] = start + self.seconds["NORM"].get(NOBODY, 0.0)
        return start, end


def _exchange_seconds(program: Program, prices: Prices) -> dict[str, dict[int, float]]:
    """Return the seconds of all exchanges by kind and stage."""
    found: dict[str, dict[int, float]] = {kind: {} for kind in (*STREAMS, "NORM")}
    for (stage, kind), items in program.collectives.items():
        if kind in STREAMS:
            found[kind][NOBODY if stage is None else stage] = float(prices.collectives(items))
    return found
