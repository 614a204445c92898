"""A simulated step as a Chrome trace, which Perfetto and chrome://tracing open.

One process per pipeline rank; one thread for its compute stream, one for its data-parallel stream and one per
link that it sends on, so that nothing overlaps on a thread. Times are microseconds, rounded to a nanosecond.
Complete events (``X``) carry stage, micro-batch and, for exchanges, logical bytes; arrows (``s``, ``f``) lead
from a send to the pass that waits for it; a counter (``C``) follows the bytes of kept activations. Every category
begins with ``simulated``: none of these times was measured. (Trace Event Format, Google, 2016.)
"""

from collections.abc import Iterator

from meshwright.program.program import Program, matching_receive
from meshwright.schedule.action import Action, Kind
from meshwright.simulate.ledger import activation_curve
from meshwright.simulate.record import Record, Simulation

Event = dict[str, object]
COMPUTE, DATA_PARALLEL, FIRST_LINK = 0, 1, 2
CONSUMER: dict[Kind, tuple[Kind, ...]] = {"RECV_F": ("F",), "RECV_B": ("B", "I")}
COUNTER = "kept activations"


def perfetto_trace(program: Program, simulation: Simulation) -> dict[str, object]:
    """The trace of a simulated step as JSON-ready data; equal inputs give equal data."""
    events: list[Event] = []
    for rank in range(program.pipeline_ranks):
        events += _names(program, rank)
        events += (_slice(program, rank, record) for record in simulation.ranks[rank])
        events += _activations(program, simulation, rank)
    events += _arrows(program, simulation)
    origin = {"origin": "simulated", "program": program.signature(), "step_time_s": simulation.step_s}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": origin}


def _names(program: Program, rank: int) -> Iterator[Event]:
    stages = ", ".join(str(stage.index) for stage in program.stages_of(rank))
    yield _metadata("process_name", rank, COMPUTE, f"pipeline rank {rank} (stages {stages}), simulated")
    yield _metadata("thread_name", rank, COMPUTE, "compute")
    yield _metadata("thread_name", rank, DATA_PARALLEL, "data-parallel")
    for other in sorted(set(_targets(program, rank).values())):
        yield _metadata("thread_name", rank, FIRST_LINK + other, f"send to rank {other}")


def _metadata(name: str, rank: int, thread: int, value: str) -> Event:
    return {"ph": "M", "name": name, "pid": rank, "tid": thread, "args": {"name": value}}


def _targets(program: Program, rank: int) -> dict[Action, int]:
    """The rank that each send of a rank goes to."""
    sends = (action for action in program.lists[rank] if action.kind in ("SEND_F", "SEND_B"))
    return {send: _rank_of(program, matching_receive(send)) for send in sends}


def _rank_of(program: Program, action: Action) -> int:
    assert action.stage is not None
    return program.stages[action.stage].rank


def _thread(program: Program, record: Record) -> int:
    if record.stream == "send":
        return FIRST_LINK + _rank_of(program, matching_receive(record.action))
    return DATA_PARALLEL if record.stream == "data-parallel" else COMPUTE


def _slice(program: Program, rank: int, record: Record) -> Event:
    action, start = record.action, _microseconds(record.start)
    arguments: dict[str, object] = {"stage": action.stage, "micro_batch": action.micro_batch}
    moved = _logical_bytes(program, action)
    return {
        "ph": "X",
        "name": str(action),
        "cat": f"simulated,{record.stream}",
        "pid": rank,
        "tid": _thread(program, record),
        "ts": start,
        "dur": round(_microseconds(record.end) - start, 3),
        "args": {name: value for name, value in arguments.items() if value is not None}
        | ({"logical_bytes": moved} if moved else {}),
    }


def _logical_bytes(program: Program, action: Action) -> int:
    """Bytes of a message or of what GATHER, REDUCE, REDUCE_TIED and NORM exchange; 0 for compute."""
    if action.kind in ("SEND_F", "SEND_B"):
        return program.p2p_bytes
    exchanged = program.collectives.get((action.stage, action.kind), ())
    return sum(int(collective.logical_bytes) for collective in exchanged)


def _activations(program: Program, simulation: Simulation, rank: int) -> Iterator[Event]:
    """The counter rises when a forward pass begins and falls when a backward pass ends."""
    records = {record.action: record for record in simulation.ranks[rank]}
    yield _counter(rank, 0.0, 0)
    before = 0
    for position, held in activation_curve(program, rank):
        if held != before:
            record = records[program.lists[rank][position]]
            yield _counter(rank, record.start if held > before else record.end, held)
        before = held


def _counter(rank: int, seconds: float, held: int) -> Event:
    return {
        "ph": "C",
        "name": COUNTER,
        "cat": "simulated,memory",
        "pid": rank,
        "ts": _microseconds(seconds),
        "args": {"bytes": held},
    }


def _arrows(program: Program, simulation: Simulation) -> Iterator[Event]:
    """One arrow per message, from its send to the pass that it feeds."""
    passes = {record.action: record for records in simulation.ranks for record in records}
    number = 0
    for rank, records in enumerate(simulation.ranks):
        for send in (record for record in records if record.stream == "send"):
            receive = matching_receive(send.action)
            fed = [Action(kind, receive.stage, receive.micro_batch) for kind in CONSUMER[receive.kind]]
            start = next(passes[action].start for action in fed if action in passes)
            common = {"name": str(send.action), "cat": "simulated,message", "id": number}
            yield common | _at("s", rank, _thread(program, send), send.start)
            yield common | _at("f", _rank_of(program, receive), COMPUTE, start) | {"bp": "e"}
            number += 1


def _at(phase: str, rank: int, thread: int, seconds: float) -> Event:
    return {"ph": phase, "pid": rank, "tid": thread, "ts": _microseconds(seconds)}


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)
