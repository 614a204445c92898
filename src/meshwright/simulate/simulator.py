"""Simulate a Program: start and end of every action, waits between ranks, memory held.

Every pipeline rank has a compute stream, a data-parallel stream and, to each neighbour and in each direction, a link
that carries one message at a time. Actions run in list order; a receive waits for its message; GATHER and REDUCE
run on the data-parallel stream where the stack overlaps them; REDUCE_MIRRORED, REDUCE_TIED and NORM wait for all ranks
that take part. Since all ranks of a class do the same, a collective inside a class needs no partner to wait for. Means
of parameters of earlier steps run on that stream from the beginning of a step; those of this step hold it up. What
overlaps compute slows it down (``cost/operators/pass_prices.py``, ``cost/closed_form/overlap_and_optimizer.py``).
Simulated times are predictions, not measurements. Exchanges of a spread vocabulary have channels of their own
(``vocabulary_exchanges.py``), and so have copies to the host and back (``offload_copies.py``).

Where steps are validated afterwards NORM is a matter of one rank, and sums go on as messages that keep nobody. Then
ranks end their steps at unlike times, and some steps are played one behind the other: what counts is the last one, by
how much later it ends than the one before. No step is a wrong one.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from meshwright.cost.closed_form.overlap_and_optimizer import (
    during_exchange,
    during_gather,
    reduction_slowdown,
    send_occupancy,
)
from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes
from meshwright.cost.operators.pass_prices import Prices, message_seconds, total
from meshwright.cost.operators.program_passes import (
    message_times,
    pass_parts,
    rank_perturbation_seconds,
    rank_step_seconds,
)
from meshwright.program.lowering.optimizer_post_validation import STEADY_STEPS, sender_of
from meshwright.program.lowering.step_collectives import NORM_BYTES
from meshwright.program.model_states.per_unit_gather_and_reduce import NEED_PARAMETERS
from meshwright.program.program import Program, matching_receive
from meshwright.schedules.action import EXCHANGES, PASS_KINDS, SUM_RECEIVES, SUM_SENDS, Action, Kind
from meshwright.schedules.activation_offload import COPIES
from meshwright.schedules.dependencies import StageChains
from meshwright.simulate.offload_copies import HostCopies
from meshwright.simulate.simulation_result import Record, Simulation
from meshwright.simulate.vocabulary_exchanges import Exchanges

BARRIERS: tuple[Kind, ...] = ("REDUCE_MIRRORED", "REDUCE_TIED")
Meeting = tuple[Kind, int | None]
"""A kind of barrier, and the place in a chain of the stages that it is for."""


def simulate(program: Program, prices: Prices) -> Simulation:
    """Play one step of the Program. Times in seconds from the start of the step."""
    player = _Player(program, prices)
    if not program.steps_overlap:
        _play(player)
        return Simulation(tuple(map(tuple, player.records)))
    for _ in range(STEADY_STEPS):
        before = _ended_s(player)
        player.begin_step()
        _play(player)
    first = min(record.start for records in player.records for record in records)
    return Simulation(
        tuple(tuple(record.earlier(first) for record in records) for records in player.records),
        _ended_s(player) - before,
    )


def message_occupancy(program: Program, forms: HardwareTimes) -> float:
    """Return the part of a message's time that blocks the sender's compute stream, for a Program."""
    several_passes = program.split or len(program.stages) > len(program.lists)
    return send_occupancy(several_passes, program.stack.overlap_p2p, forms)


def meeting(action: Action, ways: StageChains) -> Meeting:
    """Where the ranks meet that have an action of a barrier."""
    return action.kind, None if action.stage is None else ways.position(action.stage)


@dataclass
class _Rank:
    clock: float = 0.0
    data_parallel: float = 0.0
    reduced: float = 0.0
    position: int = 0
    gathered: dict[int, float] = field(default_factory=dict)
    averaged: dict[int, tuple[float, float]] = field(default_factory=dict)
    last_pass: tuple[float, float] = (0.0, 0.0)


class _Player:
    """The state of all ranks while the lists are played."""

    def __init__(self, program: Program, prices: Prices) -> None:
        self.program, self.prices = program, prices
        self.ranks = [_Rank() for _ in program.lists]
        self.barriers = BARRIERS if program.steps_overlap else (*BARRIERS, "NORM")
        self.links: dict[tuple[int, int], float] = {}
        self.durations = {key: float(total(parts)) for key, parts in pass_parts(program, prices).items()}
        self.occupancy = message_occupancy(program, prices.local.forms)
        self.expected = Counter(
            meeting(action, program.ways)
            for actions in program.lists
            for action in actions
            if action.kind in self.barriers
        )
        self.messages = message_times(program, prices)
        self.sums_message = float(message_seconds(prices.mesh, prices.local.forms, NORM_BYTES))
        self.begin_step()

    def begin_step(self) -> None:
        """All lists from their beginning, on ranks and links that are free when they are."""
        self.records: list[list[Record]] = [[] for _ in self.program.lists]
        self.arrivals: dict[Action, float] = {}
        self.sums: dict[tuple[Kind, int], float] = {}
        self.exchanges = Exchanges(self.program, self.prices, self.records)
        self.copies = HostCopies(self.program, self.prices, self.records)
        for number, rank in enumerate(self.ranks):
            rank.position = 0
            rank.averaged = _begin_means(self, number)

    def done(self, rank: int) -> bool:
        return self.ranks[rank].position == len(self.program.lists[rank])

    def advance(self, rank: int) -> bool:
        """Run a rank's actions until one can not start; False if not even one could."""
        start = self.ranks[rank].position
        for action in self._remaining(rank):
            if action.kind in self.barriers:
                break
            if not self._run(action, rank):
                break
            self.ranks[rank].position += 1
        return self.ranks[rank].position > start

    def release_barrier(self) -> list[int]:
        """Let ranks go on that all stand at the same barrier."""
        at: dict[Meeting, list[int]] = {}
        for rank in range(len(self.ranks)):
            action = next(self._remaining(rank), None)
            if action is not None and action.kind in self.barriers:
                at.setdefault(meeting(action, self.program.ways), []).append(rank)
        for where, members in at.items():
            if len(members) == self.expected[where]:
                self._meet(members)
                return members
        return []

    def _meet(self, members: list[int]) -> None:
        start = max(max(self.ranks[r].clock, self.ranks[r].data_parallel) for r in members)
        end = start + self._exchange_seconds(next(self._remaining(members[0])))
        for rank in members:
            action = next(self._remaining(rank))
            self._record(rank, action, start, end, "compute" if action.stage is None else "data-parallel")
            self.ranks[rank].clock = end
            self.ranks[rank].position += 1

    def _run(self, action: Action, rank: int) -> bool:
        state = self.ranks[rank]
        if action.kind in ("RECV_F", "RECV_B"):
            if action not in self.arrivals:
                return False
            state.clock = max(state.clock, self.arrivals[action])
        elif action.kind in ("SEND_F", "SEND_B"):
            self._send(action, rank)
        elif action.kind in ("GATHER", "REDUCE"):
            self._exchange(action, rank)
        elif action.kind == "AVERAGE":
            _average(self, action, rank)
        elif action.kind == "NORM":
            state.clock = max(state.clock, state.data_parallel)
            if (None, "NORM") in self.program.collectives:
                self._compute(action, rank, self._exchange_seconds(action))
        elif action.kind in SUM_SENDS:
            self.sums[action.kind, rank] = state.clock + self.sums_message
        elif action.kind in SUM_RECEIVES:
            arrival = self.sums.get(sender_of(action, rank) or (action.kind, rank))
            if arrival is None:
                return False
            state.clock = max(state.clock, arrival)
        elif action.kind == "PERTURB":
            self._compute(action, rank, rank_perturbation_seconds(self.program, self.prices, rank))
        elif action.kind == "STEP":
            self._compute(action, rank, rank_step_seconds(self.program, self.prices, rank))
        elif action.kind in EXCHANGES:
            clock = self.exchanges.enter(action, rank, state.clock)
            if clock is None:
                return False
            state.clock = clock
        elif action.kind in COPIES:
            self.copies.begin(action, rank, state.clock)
        elif action.kind in PASS_KINDS:
            return self._pass(action, rank)
        return True

    def _exchange_seconds(self, action: Action) -> float:
        return float(self.prices.collectives(self.program.collectives[action.stage, action.kind]))

    def _pass(self, action: Action, rank: int) -> bool:
        state, ready = self.ranks[rank], self.exchanges.ready(action)
        assert action.stage is not None
        if ready is None:
            return False
        state.clock = self.copies.before_pass(action, rank, max(state.clock, ready))
        duration = self.durations[action.stage, action.kind]
        if self.program.parts.by_unit:
            if action.kind in NEED_PARAMETERS:
                state.clock = max(state.clock, state.gathered.get(action.stage, 0.0))
            left = max(0.0, state.data_parallel - state.clock)
            self._compute(action, rank, float(during_exchange(duration, left, self.prices.local.forms)))
            return True
        gathered = state.gathered.pop(action.stage, 0.0) if action.kind in ("F", "E") else 0.0
        if gathered > state.clock:
            duration = float(during_gather(duration, gathered - state.clock, self.prices.local.forms))
        self._compute(action, rank, duration)
        return True

    def _compute(self, action: Action, rank: int, duration: float) -> None:
        state = self.ranks[rank]
        start, state.clock = state.clock, state.clock + duration
        state.last_pass = (start, duration)
        self._record(rank, action, start, state.clock, "compute")

    def _send(self, action: Action, rank: int) -> None:
        receive = matching_receive(action)
        assert receive.stage is not None
        link = (rank, self.program.stages[receive.stage].rank)
        start, seconds = (
            max(self.links.get(link, 0.0), self.ranks[rank].clock),
            self.messages[action.kind, action.stage],
        )
        self.links[link] = self.arrivals[receive] = start + seconds
        self.ranks[rank].clock = start + self.occupancy * seconds
        self._record(rank, action, start, start + seconds, "send")

    def _exchange(self, action: Action, rank: int) -> None:
        """Run a GATHER or REDUCE on the compute stream, or overlapped with it."""
        state = self.ranks[rank]
        assert action.stage is not None
        seconds = self._exchange_seconds(action)
        if action.kind not in self.program.overlapped:
            start = max(state.clock, state.data_parallel)
            state.clock = state.data_parallel = start + seconds
            self._record(rank, action, start, state.clock, "data-parallel")
            return
        if action.kind == "GATHER":
            start = max(state.clock, state.data_parallel)
            end = state.gathered[action.stage] = start + seconds
        elif self.program.parts.by_unit:
            state.clock = max(state.clock, state.reduced)
            start = max(state.clock, state.data_parallel)
            end = state.reduced = start + seconds
        else:
            start, end = self._overlap_reduction(action.stage, rank, seconds)
        state.data_parallel = end
        self._record(rank, action, start, end, "data-parallel")

    def _overlap_reduction(self, stage: int, rank: int, seconds: float) -> tuple[float, float]:
        """Overlap a reduction with the backward pass just recorded, and slow that pass down."""
        state = self.ranks[rank]
        began, duration = state.last_pass
        units = len(self.program.sections[stage].blocks)
        state.clock += float(reduction_slowdown(seconds, duration, units, self.prices.local.forms))
        start = max(state.data_parallel, began + duration / units)
        return start, max(start + seconds, state.clock + seconds / units)

    def _record(self, rank: int, action: Action, start: float, end: float, stream: str) -> None:
        self.records[rank].append(Record(action, start, end, stream))

    def _remaining(self, rank: int) -> Iterator[Action]:
        actions = self.program.lists[rank]
        while self.ranks[rank].position < len(actions):
            yield actions[self.ranks[rank].position]


def _begin_means(player: _Player, rank: int) -> dict[int, tuple[float, float]]:
    """Begin the means of earlier parameters with the step, and return the begin and the end of each."""
    state, found = player.ranks[rank], dict[int, tuple[float, float]]()
    for action in player.program.lists[rank]:
        if action.kind == "AVERAGE" and action.stage is not None:
            items = player.program.collectives[action.stage, action.kind]
            seconds = float(player.prices.collectives(item for item in items if item.version))
            start = max(state.clock, state.data_parallel)
            if seconds:
                state.data_parallel = start + seconds
                found[action.stage] = start, state.data_parallel
    return found


def _average(player: _Player, action: Action, rank: int) -> None:
    """Wait for the mean of earlier parameters, and average those of this step."""
    state = player.ranks[rank]
    assert action.stage is not None
    items = player.program.collectives[action.stage, action.kind]
    if action.stage in state.averaged:
        start, end = state.averaged[action.stage]
        state.clock = max(state.clock, end)
        player._record(rank, action, start, end, "data-parallel")
    now = float(player.prices.collectives(item for item in items if not item.version))
    if now:
        start = max(state.clock, state.data_parallel)
        state.clock = state.data_parallel = start + now
        player._record(rank, action, start, state.clock, "data-parallel")


def _play(player: _Player) -> None:
    """Run all lists to their ends."""
    waiting = set(range(player.program.pipeline_ranks))
    while waiting:
        moved = [rank for rank in sorted(waiting) if player.advance(rank)]
        moved += player.release_barrier()
        waiting = {rank for rank in waiting if not player.done(rank)}
        assert moved or not waiting, "the validator let a deadlock through"


def _ended_s(player: _Player) -> float:
    """Return when every recorded action has ended."""
    return max((record.end for records in player.records for record in records), default=0.0)
