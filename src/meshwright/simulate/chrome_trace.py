"""A simulated step as a Chrome trace, which Perfetto and chrome://tracing open.

One process per pipeline rank and one thread for each of its streams (``step_streams.py``). Times are microseconds,
rounded to a nanosecond. Complete events (``X``) carry stage, micro-batch and, for exchanges, logical
bytes; arrows (``s``, ``f``) lead from a send to the pass that waits for it; a counter (``C``) follows the bytes of kept
activations. Every category begins with ``simulated``, or ``emulated`` for such a step: none of these times was
measured. (Trace Event Format, Google, 2016.)
"""

from collections.abc import Iterator
from typing import Literal

from meshwright.program.program import Program, matching_receive
from meshwright.schedules.action import Action, Kind
from meshwright.simulate.activation_timeline import activations_over_time
from meshwright.simulate.simulation_result import Record, Simulation
from meshwright.simulate.step_streams import COMPUTE, logical_bytes, receiving_rank, stream_names, stream_of

Event = dict[str, object]
Origin = Literal["simulated", "emulated"]
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
    for stream, name in stream_names(program, rank).items():
        yield _metadata("thread_name", rank, stream, name)


def _metadata(name: str, rank: int, thread: int, value: str) -> Event:
    return {"ph": "M", "name": name, "pid": rank, "tid": thread, "args": {"name": value}}


def _slice(program: Program, rank: int, record: Record, origin: Origin) -> Event:
    action, start = record.action, _microseconds(record.start)
    arguments: dict[str, object] = {"stage": action.stage, "micro_batch": action.micro_batch}
    moved = logical_bytes(program, action)
    return {
        "ph": "X",
        "name": str(action),
        "cat": f"{origin},{record.stream}",
        "pid": rank,
        "tid": stream_of(program, record),
        "ts": start,
        "dur": round(_microseconds(record.end) - start, 3),
        "args": {name: value for name, value in arguments.items() if value is not None}
        | ({"logical_bytes": moved} if moved else {}),
    }


def _activations(program: Program, simulation: Simulation, rank: int, origin: Origin) -> Iterator[Event]:
    """Yield the counter of activations."""
    for seconds, held in activations_over_time(program, simulation, rank):
        yield _counter(rank, seconds, held, origin)


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
            yield common | _at("s", rank, stream_of(program, send), send.start)
            yield common | _at("f", receiving_rank(program, send.action), COMPUTE, start) | {"bp": "e"}
            number += 1


def _at(phase: str, rank: int, thread: int, seconds: float) -> Event:
    return {"ph": phase, "pid": rank, "tid": thread, "ts": _microseconds(seconds)}


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)
