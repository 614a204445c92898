"""The request for a schedule, and its lists: from a named schedule or from a CSV file.

Everything that is wrong with the question comes at once. Numbers that a schedule does not look at are refused where
one schedule is asked for; where several are compared each takes what it knows.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from math import isfinite

from meshwright.errors import InputError, Problem, attempted, nearest
from meshwright.schedules.action import Action
from meshwright.schedules.custom.csv_file import FORM
from meshwright.schedules.custom.inferred_shape import Shape, shape_of
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.integer_times import Ticks
from meshwright.schedules.pipeline import Knobs
from meshwright.schedules.schedule_kind import ScheduleKind, nearest_unit
from meshwright.schedules.stage_times import StageTimes
from meshwright.verbs.schedule.csv_lists import lists_of_file
from meshwright.verbs.schedule.pass_times import GivenTimes, for_pipeline, times_given

MAX_RANKS, MAX_MICRO_BATCHES, MAX_CHUNKS = 1024, 2**17, 64
MAX_PASSES = 3_000_000
"""F, I and W of all stages and micro-batches; more takes minutes."""
EXAMPLES = {"stages": 4, "micro-batches": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRequest:
    """The options of ``schedule``, as they were given; None where they were not."""

    stages: int | None = None
    micro_batches: int | None = None
    chunks: int | None = None
    times: str | None = None
    stage_times: str | None = None
    memory_limit: float | None = None
    unit: int | None = None


@dataclass(frozen=True, slots=True)
class ScheduleLists:
    """Lists with what they are for. ``limit`` is the most that a rank may hold, None for no limit.

    ``stages_given``: of how many stages the times were given by themselves.
    """

    name: str
    lists: list[list[Action]]
    shape: Shape
    ticks: Ticks
    limit: float | None
    stages_given: int | None = None

    @property
    def kept(self) -> float:
        """The part of F's memory that I leaves for W."""
        return self.ticks.times.kept


def make_lists(name: str, request: ScheduleRequest, *, regroup: bool = False) -> ScheduleLists:
    """Return the lists of a schedule or a file; ``regroup`` as in ``for_pipeline``.

    Raises InputError with all problems.
    """
    if name in SCHEDULES:
        return _generated(name, SCHEDULES[name], request, regroup)
    if name.endswith(".csv") or os.path.exists(name):
        return _from_file(name, request, regroup)
    hint = f"{nearest(name, SCHEDULES)}; or {FORM}"
    raise InputError(Problem("schedule", name, "is neither a schedule nor a file", hint))


def without_unused_options(name: str, request: ScheduleRequest) -> ScheduleRequest:
    """Return the question without options that this schedule does not use."""
    kind = SCHEDULES.get(name)
    if kind is None:
        return replace(request, chunks=None, unit=None)
    chunks = request.chunks if request.chunks is not None and kind.allows(request.chunks) else None
    return replace(request, chunks=chunks, unit=request.unit if "unit" in kind.depends_on else None)


def usual_chunks(kind: ScheduleKind) -> int:
    """Return the default number of chunks per rank."""
    return kind.fixed_chunks or (2 if kind.chunked else 1)


def _generated(name: str, kind: ScheduleKind, request: ScheduleRequest, regroup: bool) -> ScheduleLists:
    chunks = usual_chunks(kind) if request.chunks is None else request.chunks
    numbers = list(number_problems(request, required=True))
    problems = [*numbers, *limit_problems(request), *_unknown_to(name, kind, request, chunks)]
    if not numbers:
        problems += _size_problems(name, kind, request, chunks)
    given: GivenTimes | None = attempted(lambda: times_given(request.times, request.stage_times), problems)
    if problems or given is None:
        raise InputError(problems)
    ranks, micro_batches = request.stages or 0, request.micro_batches or 0
    ticks = for_pipeline(given, ranks, kind.ways(ranks, chunks), regroup)
    knobs = Knobs(memory_limit=request.memory_limit, unit=request.unit)
    lists = kind.lists(ranks, micro_batches, chunks, ticks.units(), knobs)
    return ScheduleLists(name, lists, shape_of(lists), ticks, request.memory_limit, _stages_given(given))


def _from_file(path: str, request: ScheduleRequest, regroup: bool) -> ScheduleLists:
    problems = [*number_problems(request, required=False), *limit_problems(request)]
    given: GivenTimes | None = attempted(lambda: times_given(request.times, request.stage_times), problems)
    found = attempted(lambda: lists_of_file(path), problems)
    if found is not None:
        problems += _unlike(found[1], request)
    if problems or given is None or found is None:
        raise InputError(problems)
    lists, shape = found
    ticks = for_pipeline(given, shape.ranks, shape.ways, regroup)
    return ScheduleLists(path, lists, shape, ticks, request.memory_limit, _stages_given(given))


def _stages_given(given: GivenTimes) -> int | None:
    """Return the number of stages whose times were given by themselves."""
    return len(given.forward) if isinstance(given, StageTimes) else None


def number_problems(request: ScheduleRequest, required: bool) -> Iterator[Problem]:
    """Numbers that are out of bounds or missing."""
    given = {
        "stages": (request.stages, MAX_RANKS),
        "micro-batches": (request.micro_batches, MAX_MICRO_BATCHES),
        "chunks": (request.chunks, MAX_CHUNKS),
        "unit": (request.unit, MAX_MICRO_BATCHES),
    }
    for name, (value, most) in given.items():
        if value is None and required and name in EXAMPLES:
            yield Problem(name, None, "is needed to make the lists", f"--{name} {EXAMPLES[name]}")
        elif value is not None and not 1 <= value <= most:
            yield Problem(name, value, f"must be from 1 to {most}", f"--{name} {min(most, max(1, value))}")


def parse_limits(value: str | float | Iterable[float] | None) -> tuple[float, ...]:
    """Return memory limits: a number, several, or a text with commas. Raise InputError."""
    if value is None:
        return ()
    parts = (
        value.split(",") if isinstance(value, str) else [value] if isinstance(value, int | float) else value
    )
    try:
        return tuple(float(part) for part in parts)
    except ValueError:
        rule = "is no number, and no list of numbers"
        raise InputError(Problem("memory-limit", str(value), rule, "--memory-limit 8, or 4,8,16")) from None


def limit_problems(request: ScheduleRequest) -> Iterator[Problem]:
    """Yield the problem of a memory limit that no schedule can keep."""
    limit = request.memory_limit
    if limit is not None and not (isfinite(limit) and limit > 0):
        rule = "must be above 0; one micro-batch on a rank takes 2"
        yield Problem(
            "memory-limit", limit, rule, f"--memory-limit {2 * max(1, min(request.stages or 4, 64))}"
        )


def _unknown_to(name: str, kind: ScheduleKind, request: ScheduleRequest, chunks: int) -> Iterator[Problem]:
    """Chunks and a unit that this schedule can not have."""
    if 1 <= chunks <= MAX_CHUNKS and not kind.allows(chunks):
        rule = f"the chunks of a rank under {name} are {chunk_words(kind)}"
        yield Problem("chunks", chunks, rule, f"--chunks {usual_chunks(kind)}")
    if request.unit is not None and "unit" not in kind.depends_on:
        yield Problem("unit", request.unit, f"{name} has no unit of micro-batches", "leave it out")


def _size_problems(name: str, kind: ScheduleKind, request: ScheduleRequest, chunks: int) -> Iterator[Problem]:
    """Sizes for which this schedule can not be made, or not soon."""
    ranks, micro_batches = request.stages or 0, request.micro_batches or 0
    passes = 3 * ranks * micro_batches * chunks
    if passes > MAX_PASSES:
        rule = f"3·stages·chunks·micro-batches = {passes:,} passes > {MAX_PASSES:,}"
        yield Problem("micro-batches", micro_batches, rule, f"--micro-batches {4 * ranks}")
        return
    fault = kind.fault(ranks, micro_batches, Knobs(unit=request.unit))
    if fault:
        option, value = _mending(kind, ranks, micro_batches, request.unit)
        wrong = {"stages": ranks, "micro-batches": micro_batches, "unit": request.unit}[option]
        yield Problem(option, wrong, f"{name}: {fault}", f"--{option} {value}")


def _mending(kind: ScheduleKind, ranks: int, micro_batches: int, unit: int | None) -> tuple[str, int]:
    """Return the option that makes the schedule possible, with its nearest value: ranks, a unit, or M."""
    if ranks % kind.rank_multiple:
        return "stages", ranks + -ranks % kind.rank_multiple
    other = None if unit is None else nearest_unit(kind, ranks, micro_batches, unit)
    if other is not None:
        return "unit", other
    return "micro-batches", next(m for m in count(micro_batches) if not kind.fault(ranks, m))


def _unlike(shape: Shape, request: ScheduleRequest) -> Iterator[Problem]:
    """Numbers that differ from those of a file."""
    ours = {
        "stages": (request.stages, shape.ranks),
        "micro-batches": (request.micro_batches, shape.total),
        "chunks": (request.chunks, shape.chunks),
    }
    for name, (value, of_file) in ours.items():
        if value not in (None, of_file):
            yield Problem(name, value, f"the file has {of_file}", f"--{name} {of_file}, or leave it out")
    if request.unit is not None:
        yield Problem("unit", request.unit, "the lists are made already", "leave it out")


def chunk_words(kind: ScheduleKind) -> str:
    """Describe how many chunks a rank may have."""
    return "2 or more" if kind.chunked and kind.fixed_chunks is None else str(usual_chunks(kind))
