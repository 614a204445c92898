"""A simulated step as columns of integers, which a page draws: actions on streams, and memory over time.

A trace says everything of every action again (``chrome_trace.py``). Here each distinct action is said once, as a body:
kind, stage, stream, duration and bytes. A stream is three columns: the body of each action, its micro-batch (-1: none)
and its start as the difference from the start before it. Times are whole nanoseconds. Nothing is left out.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from meshwright.program.program import Program
from meshwright.schedules.action import Kind
from meshwright.simulate.activation_timeline import activations_over_time
from meshwright.simulate.simulation_result import Record, Simulation
from meshwright.simulate.step_streams import logical_bytes, stream_names, stream_of

NANOSECONDS = 1e9
NO_MICRO_BATCH = -1
Passes = Mapping[tuple[int, Kind], Mapping[str, Any]]
Body = tuple[Kind, int | None, str, int, int]


def step_timeline(program: Program, simulation: Simulation, passes: Passes) -> dict[str, Any]:
    """Return a simulated step; ``passes``: the seconds of each pass of a stage by part of the step."""
    bodies: dict[Body, int] = {}
    ranks = [_rank(program, rank, records, bodies) for rank, records in enumerate(simulation.ranks)]
    return {
        "origin": "simulated",
        "step_time_s": simulation.step_s,
        "unit_s": 1 / NANOSECONDS,
        "bodies": [_body(body, passes) for body in bodies],
        "ranks": ranks,
    }


def memory_over_time(
    program: Program, simulation: Simulation, ledgers: Sequence[Mapping[str, int]]
) -> list[dict[str, Any]]:
    """Return what the device of each pipeline rank holds during a simulated step.

    ``ledgers`` have the peak bytes of each rank by kind. All but the activations are held throughout, with their peak;
    activations follow the passes, and never exceed their peak of the ledger, which knows what a head frees.
    ``time`` and ``activations`` are differences from the entry before, in nanoseconds and bytes.
    """
    curves = []
    for rank, ledger in enumerate(ledgers):
        most = ledger["activations"]
        points = [
            (_ticks(seconds), min(held, most))
            for seconds, held in sorted(
                activations_over_time(program, simulation, rank), key=lambda point: point[0]
            )
        ]
        held = {kind: int(size) for kind, size in ledger.items() if kind != "activations"}
        columns = [_differences(column) for column in zip(*points, strict=True)]
        curves.append({"rank": rank, "held": held, "time": columns[0], "activations": columns[1]})
    return curves


def _rank(program: Program, rank: int, records: Sequence[Record], bodies: dict[Body, int]) -> dict[str, Any]:
    """Return the streams of a pipeline rank that have something to do, and add their bodies."""
    names = stream_names(program, rank)
    streams: dict[int, list[Record]] = {}
    for record in records:
        streams.setdefault(stream_of(program, record), []).append(record)
    return {
        "rank": rank,
        "stages": [stage.index for stage in program.stages_of(rank)],
        "streams": [
            _stream(program, names[stream], streams[stream], bodies) for stream in names if stream in streams
        ],
    }


def _stream(
    program: Program, name: str, records: Sequence[Record], bodies: dict[Body, int]
) -> dict[str, Any]:
    body, micro_batch, start = [], [], []
    for record in sorted(records, key=lambda one: (one.start, one.end)):
        action, begin = record.action, _ticks(record.start)
        duration, moved = _ticks(record.end) - begin, logical_bytes(program, action)
        key: Body = action.kind, action.stage, name.partition(" to ")[0], duration, moved
        body.append(bodies.setdefault(key, len(bodies)))
        micro_batch.append(NO_MICRO_BATCH if action.micro_batch is None else action.micro_batch)
        start.append(begin)
    return {"stream": name, "body": body, "micro_batch": micro_batch, "start": _differences(start)}


def _body(body: Body, passes: Passes) -> dict[str, Any]:
    kind, stage, stream, duration, moved = body
    parts = {} if stage is None else passes.get((stage, kind), {})
    return {
        "action": kind,
        "stage": stage,
        "stream": stream,
        "duration": duration,
        "bytes": moved,
        "parts_s": {name: float(seconds) for name, seconds in parts.items() if float(seconds)},
    }


def _ticks(seconds: float) -> int:
    return round(seconds * NANOSECONDS)


def _differences(values: Sequence[int]) -> list[int]:
    """Return the first value, then each value less the one before it."""
    return [*values[:1], *(after - before for before, after in pairwise(values))]
