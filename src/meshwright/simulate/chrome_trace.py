"""A simulated step as a Chrome trace, which Perfetto and chrome://tracing open.

One process per pipeline rank; one thread for its compute stream, one for its data-parallel stream, one per link
that it sends on, one per kind of exchange of a spread vocabulary and one per direction of the way to the host, so that
nothing overlaps on a thread. Times are
microseconds, rounded to a nanosecond. Complete events (``X``) carry stage, micro-batch and, for exchanges, logical
bytes; arrows (``s``, ``f``) lead from a send to the pass that waits for it; a counter (``C``) follows the bytes of kept
activations. Every category begins with ``simulated``, or ``emulated`` for such a step: none of these times was
measured. (Trace Event Format, Google, 2016.)
"""

from collections.abc import Iterator
from typing import Literal

from meshwright.program.program import Program, matching_receive
from meshwright.schedules.action import EXCHANGES, Action, Kind
from meshwright.schedules.activation_offload import COPIES
from meshwright.simulate.memory_ledger import activation_curve
from meshwright.simulate.simulation_result import Record, Simulation

Event = dict[str, object]
Origin = Literal["simulated", "emulated"]
COMPUTE, DATA_PARALLEL, FIRST_LINK = 0, 1, 2
CONSUMER: dict[Kind, tuple[Kind, ...]] = {"RECV_F": ("F",), "RECV_B": ("B", "I")}
COUNTER = "kept activations"


def perfetto_trace(
    program: Program, simulation: Simulation, origin: Origin = "simulated"
) -> dict[str, object]:
    """Return the trace of a step as JSON-ready data; equal inputs give equal data. ``origin``: source of the times."""
    events: list[Event] = []
    for rank in range(program.pipeline_ranks):
        events += _names(program, rank, origin)
        events += (_slice(program, rank, record, origin) for record in simulation.ranks[rank])
        events += _activations(program, simulation, rank, origin)
    events += _arrows(program, simulation, origin)
    about = {"origin": origin, "program": program.signature(), "step_time_s": simulation.step_s}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _names(program: Program, rank: int, origin: Origin) -> Iterator[Event]:
    stages = ", ".join(str(stage.index) for stage in program.stages_of(rank))
    yield _metadata("process_name", rank, COMPUTE, f"pipeline rank {rank} (stages {stages}), {origin}")
    yield _metadata("thread_name", rank, COMPUTE, "compute")
    yield _metadata("thread_name", rank, DATA_PARALLEL, "data-parallel")
    for other in sorted(set(_targets(program, rank).values())):
        yield _metadata("thread_name", rank, FIRST_LINK + other, f"send to rank {other}")
    for kind in EXCHANGES if program.shares else ():
        yield _metadata("thread_name", rank, _channel(program, kind), kind)
    for kind, way in zip(COPIES, ("to", "from"), strict=True) if any(program.offloaded_bytes) else ():
        yield _metadata("thread_name", rank, _channel(program, kind), f"{way} the host")


def _metadata(name: str, rank: int, thread: int, value: str) -> Event:
    return {"ph": "M", "name": name, "pid": rank, "tid": thread, "args": {"name": value}}


def _targets(program: Program, rank: int) -> dict[Action, int]:
    """Return the rank that each send of a rank goes to."""
    sends = (action for action in program.lists[rank] if action.kind in ("SEND_F", "SEND_B"))
    return {send: _rank_of(program, matching_receive(send)) for send in sends}


def _rank_of(program: Program, action: Action) -> int:
    assert action.stage is not None
    return program.stages[action.stage].rank


def _channel(program: Program, kind: Kind) -> int:
    return FIRST_LINK + program.pipeline_ranks + (*EXCHANGES, *COPIES).index(kind)


def _thread(program: Program, record: Record) -> int:
    if record.stream in ("exchange", "host"):
        return _channel(program, record.action.kind)
    if record.stream == "send":
        return FIRST_LINK + _rank_of(program, matching_receive(record.action))
    return DATA_PARALLEL if record.stream == "data-parallel" else COMPUTE


def _slice(program: Program, rank: int, record: Record, origin: Origin) -> Event:
    action, start = record.action, _microseconds(record.start)
    arguments: dict[str, object] = {"stage": action.stage, "micro_batch": action.micro_batch}
    moved = _logical_bytes(program, action)
    return {
        "ph": "X",
        "name": str(action),
        "cat": f"{origin},{record.stream}",
        "pid": rank,
        "tid": _thread(program, record),
        "ts": start,
        "dur": round(_microseconds(record.end) - start, 3),
        "args": {name: value for name, value in arguments.items() if value is not None}
        | ({"logical_bytes": moved} if moved else {}),
    }


def _logical_bytes(program: Program, action: Action) -> int:
    """Bytes of a message or of what any other exchange moves; 0 for compute."""
    if action.kind in ("SEND_F", "SEND_B"):
        return program.p2p_bytes
    if action.kind in COPIES:
        assert action.stage is not None
        return program.offloaded_bytes[action.stage]
    exchanged = program.collectives.get((action.stage, action.kind), ())
    return sum(int(collective.logical_bytes) for collective in exchanged)


def _activations(program: Program, simulation: Simulation, rank: int, origin: Origin) -> Iterator[Event]:
    """Yield the counter of activations: up when a forward pass or copy back begins, down when a backward pass ends.

    What is copied to the host leaves when the pass behind has ended, which waits for the copy.
    """
    records = {record.action: record for record in simulation.ranks[rank]}
    yield _counter(rank, 0.0, 0, origin)
    before = 0
    for position, held in activation_curve(program, rank):
        if held != before:
            record = records[program.lists[rank][position]]
            yield _counter(rank, record.start if held > before else record.end, held, origin)
        before = held


def _counter(rank: int, seconds: float, held: int, origin: Origin) -> Event:
    return {
        "ph": "C",
        "name": COUNTER,
        "cat": f"{origin},memory",
        "pid": rank,
        "ts": _microseconds(seconds),
        "args": {"bytes": held},
    }


def _arrows(program: Program, simulation: Simulation, origin: Origin) -> Iterator[Event]:
    """One arrow per message, from its send to the pass that it feeds."""
    passes = {record.action: record for records in simulation.ranks for record in records}
    number = 0
    for rank, records in enumerate(simulation.ranks):
        for send in (record for record in records if record.stream == "send"):
            receive = matching_receive(send.action)
            fed = [Action(kind, receive.stage, receive.micro_batch) for kind in CONSUMER[receive.kind]]
            start = next(passes[action].start for action in fed if action in passes)
            common = {"name": str(send.action), "cat": f"{origin},message", "id": number}
            yield common | _at("s", rank, _thread(program, send), send.start)
            yield common | _at("f", _rank_of(program, receive), COMPUTE, start) | {"bp": "e"}
            number += 1


def _at(phase: str, rank: int, thread: int, seconds: float) -> Event:
    return {"ph": phase, "pid": rank, "tid": thread, "ts": _microseconds(seconds)}


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)
