"""Compare the exchanges that a rank logged in a step with the Program's.

Passes and messages are compared action by action. A reduction of several exchanges begins in its action and continues
during later ones, so the surplus of a pass counts for the step, which is compared as a whole.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshwright.plans.synchronisation.periods import LearningRates, Periods
from meshwright.plans.synchronisation.synchronisation import exchanged_between_steps
from meshwright.program.layouts.table_transfers import of_rank
from meshwright.program.lowering.optimizer_post_validation import before_validation
from meshwright.program.lowering.step_collectives import NORM_BYTES, late_gathers
from meshwright.program.model_states.base_changes import change_gathers_of
from meshwright.program.model_states.matrix_exchanges import matrix_units, step_exchanges
from meshwright.program.model_states.state_elements import DENSE_SHARD_AXES, EXPERT_SHARD_AXES
from meshwright.program.pass_items import Collective, PassKind, exchanges_of, legs_of
from meshwright.program.program import (
    Program,
    message_bytes,
    message_reshard,
    rank_items,
    table_changes_layout,
    table_transfers_of,
)
from meshwright.program.reshard import Reshard, Way, transfer_bytes, way_transfers
from meshwright.program.synchronisation.encoded_program import encoded_for_rank
from meshwright.program.synchronisation.islands import EXPERT_AXES
from meshwright.program.synchronisation.rank_exchanges import RankExchanges
from meshwright.runtime.comm.communicator import Traffic
from meshwright.runtime.comm.process_groups import MESSAGES, SYNCHRONISING
from meshwright.schedules.action import EXCHANGES, PASS_KINDS, SUM_SENDS, Action


@dataclass(frozen=True)
class EntryTraffic:
    """Exchanges of an entry of ``synchronise`` in a run, with their collectives on all ranks."""

    entry: int
    exchanges: int
    logged: Counter[tuple[str, tuple[str, ...], float]]
    predicted: Counter[tuple[str, tuple[str, ...], float]]

    @property
    def logged_bytes(self) -> int:
        """Bytes of all ranks."""
        return _bytes(self.logged)

    @property
    def predicted_bytes(self) -> int:
        """Bytes of all ranks."""
        return _bytes(self.predicted)

    @property
    def differences(self) -> Iterator[str]:
        """Say what is missing or too much."""
        for of, word in (
            (self.predicted - self.logged, "missing"),
            (self.logged - self.predicted, "too many"),
        ):
            for (kind, axes, size), number in of.items():
                yield f"synchronise.{self.entry}: {number} {kind} over {', '.join(axes)}{_of(size)} {word}"


def _bytes(counted: Counter[tuple[str, tuple[str, ...], float]]) -> int:
    return sum(int(size) * number for (*_, size), number in counted.items())


Exchange = tuple[str, tuple[str, ...], float]
"""Kind, axes, logical bytes."""
AS_ROUTED = -1.0
"""Stands for bytes that depend on the router's choices (``routed_traffic.py``)."""
STEP = "step"
"""Stands for all actions that are neither passes nor messages nor exchanges of shares."""


def differing_traffic(
    program: Program, rank: int, log: Sequence[Traffic], *, anew: bool = False
) -> list[str]:
    """Return the differences between a rank's log of one step and the Program, as text.

    ``anew``: the step was restarted.
    """
    expected = expected_traffic(program, rank, anew=anew)
    logged: dict[str, Counter[Exchange]] = {action: Counter() for action in expected}
    for entry in log:
        if entry.action == str(SYNCHRONISING):
            continue  # ``between_islands``
        logged.get(entry.action, logged[STEP])[_exchange(entry)] += 1
    logged[STEP] += _surplus(expected, logged)
    return list(_differences(expected, logged))


def between_islands(
    program: Program,
    logs: Sequence[Sequence[Sequence[Traffic]]],
    steps: int,
    rates: LearningRates | None = None,
) -> list[EntryTraffic]:
    """Compare all exchanges of every entry between islands, of all ranks (rank, step, entry of the log)."""
    found = []
    for number in exchanged_between_steps(program.synchronise, program.loose):
        said, logged, predicted = program.synchronise[number], Counter[Exchange](), Counter[Exchange]()
        due = list(Periods(said, rates).exchanges(steps))
        for rank, log in enumerate(logs):
            exchanges = RankExchanges(program, rank)
            for one in due:
                for message in exchanges.messages(number, one.fragment):
                    predicted.update(map(_exchange, message.collectives))
            axes = {(said.axis,), (EXPERT_AXES[said.axis],)}
            entries = (entry for of_step in log for entry in of_step)
            logged.update(
                _exchange(entry)
                for entry in entries
                if entry.action == str(SYNCHRONISING)
                and entry.axes in axes
                and entry.what.partition(" ")[0] in said.states
            )
        found.append(EntryTraffic(number, len(due), logged, predicted))
    return found


def inside_steps(
    program: Program, logs: Sequence[Sequence[Sequence[Traffic]]], steps: int
) -> list[EntryTraffic]:
    """Compare the encoded exchanges of every entry inside of steps, of all ranks (rank, step, entry of the log).

    An entry is exchanged once in every step.
    """
    logged: dict[int, Counter[Exchange]] = {}
    predicted: dict[int, Counter[Exchange]] = {}
    for rank, log in enumerate(logs):
        for traffic in (one for of_step in log for one in of_step):
            if traffic.entry is not None and not traffic.routed:
                logged.setdefault(traffic.entry, Counter())[_exchange(traffic)] += 1
        for action in program.lists[program.parts.pipeline_rank(rank)]:
            passes = action.kind in PASS_KINDS
            items = in_pass(program, action, rank) if passes else _of_step(program, action, rank)
            for item in items:
                if item.entry is not None and not item.routed:
                    predicted.setdefault(item.entry, Counter())[_exchange(item)] += steps
    return [
        EntryTraffic(entry, steps, logged.get(entry, Counter()), predicted.get(entry, Counter()))
        for entry in sorted(logged.keys() | predicted.keys())
    ]


def expected_traffic(program: Program, rank: int, *, anew: bool = False) -> dict[str, Counter[Exchange]]:
    """Return the exchanges of a rank in a step: by pass and message, and for the rest of the step.

    A restarted step repeats the actions before VALIDATE, and the gathers at the end of the previous step.
    """
    expected: dict[str, Counter[Exchange]] = {STEP: Counter()}
    actions = program.lists[program.parts.pipeline_rank(rank)]
    again = (*before_validation(actions), *late_gathers(actions)) if anew else ()
    for action in (*actions, *again):
        if action.kind == "STEP":
            items = optimizer_exchanges(program, rank)
            expected[STEP].update(map(_exchange, items))
            continue
        named = action.kind in (*PASS_KINDS, *EXCHANGES, "SEND_F", "SEND_B", *SUM_SENDS)
        expected.setdefault(str(action) if named else STEP, Counter()).update(
            _exchanges(program, action, rank)
        )
    return expected


def optimizer_exchanges(program: Program, rank: int) -> Iterator[Collective]:
    """Yield the exchanges of a rank's optimizer step; the Program's are those of the first of the ranks that share."""
    for stage in program.stages_of(program.parts.pipeline_rank(rank)):
        yield from change_gathers_of(program, stage.index)
        if program.stack.optimizer.kind.of_matrices:
            part = program.parts.only
            places = (
                part.grid.group_of(rank, DENSE_SHARD_AXES).index(rank),
                part.expert_grid.group_of(rank, EXPERT_SHARD_AXES).index(rank),
            )
            units = matrix_units([program.blocks[block] for block in stage.blocks], part.mode)
            items = step_exchanges(units, part.sharding, part.shape, program.stack, places)
            yield from (item for item in items if program.group_size(item.axes) > 1)


def _exchanges(program: Program, action: Action, rank: int) -> Iterator[Exchange]:
    if action.kind in ("SEND_F", "SEND_B"):
        reshard = message_reshard(program, action)
        if reshard is None:
            yield "p2p", MESSAGES, float(message_bytes(program, action, rank))
        else:
            yield from _pieces(program, reshard, "F" if action.kind == "SEND_F" else "B", rank)
        return
    if action.kind in SUM_SENDS:
        yield "p2p", MESSAGES, float(NORM_BYTES)
        return
    if action.kind in PASS_KINDS:
        assert action.stage is not None
        for segment in program.bodies[action.stage, action.kind]:
            if segment.reshard is not None:
                yield from _pieces(program, segment.reshard, "F" if segment.kind == "F" else "B", rank)
    if action.kind == "REDUCE_TIED" and table_changes_layout(program):
        size = program.stack.gradient_communication_bytes
        for one in of_rank(table_transfers_of(program), rank)[0]:
            yield "p2p", MESSAGES, float(size * (one.elements[1] - one.elements[0]))
        return
    own = in_pass(program, action, rank) if action.kind in PASS_KINDS else _of_step(program, action, rank)
    yield from map(_exchange, own)


def _pieces(program: Program, reshard: Reshard, way: Way, rank: int) -> Iterator[Exchange]:
    """Yield what a rank sends in a change of layout."""
    hidden = program.hidden
    for transfer in way_transfers(program.parts, reshard, way):
        if transfer.source == rank != transfer.target:
            yield "p2p", MESSAGES, float(transfer_bytes(transfer, hidden))


def _exchange(of: Collective | Traffic) -> Exchange:
    return of.kind, of.axes, AS_ROUTED if of.routed else float(of.logical_bytes)


def in_pass(program: Program, action: Action, rank: int) -> Iterator[Collective]:
    """Yield the exchanges of a rank in a pass, leg by leg."""
    assert action.stage is not None
    for segment in program.bodies[action.stage, action.kind]:
        for _ in range(segment.count):
            yield from encoded_for_rank(program, rank, action.stage, segment.overlapped)
            if segment.block is not None:
                yield from _of_block(program, segment.block, segment.kind, rank)


def _of_block(program: Program, block: int, kind: PassKind, rank: int) -> Iterator[Collective]:
    for item in rank_items(program, rank, block, kind):
        for exchange in exchanges_of(item):
            yield from legs_of(exchange, program.parts.of(block).expert_grid)


def _of_step(program: Program, action: Action, rank: int) -> Iterable[Collective]:
    items = program.collectives.get((action.stage, action.kind), ())
    return items if action.stage is None else encoded_for_rank(program, rank, action.stage, items)


def _surplus(
    expected: Mapping[str, Counter[Exchange]], logged: Mapping[str, Counter[Exchange]]
) -> Counter[Exchange]:
    """Return the exchanges that passes and messages have logged too many of."""
    extra = Counter[Exchange]()
    for action in expected.keys() - {STEP}:
        extra += logged[action] - expected[action]
    return extra


def _differences(
    expected: Mapping[str, Counter[Exchange]], logged: Mapping[str, Counter[Exchange]]
) -> Iterator[str]:
    for action, exchanges in expected.items():
        for (kind, axes, size), number in (exchanges - logged[action]).items():
            yield f"{action}: {number} {kind} over {', '.join(axes)}{_of(size)} missing"
    for (kind, axes, size), number in (logged[STEP] - expected[STEP]).items():
        yield f"{STEP}: {number} {kind} over {', '.join(axes)}{_of(size)} too many"


def _of(size: float) -> str:
    return "" if size == AS_ROUTED else f" of {size:.0f} bytes"
