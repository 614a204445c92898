"""Compare schedules of one pipeline: named, from files, or searched, under one memory limit or several.

Under several memory limits each schedule has a row for each: those that heed the limit are made anew, the others are
the same lists, which fit or do not. ``auto`` is searched under each limit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from meshwright.errors import InfeasibleError, InputError, Problem, attempted
from meshwright.schedules.generators import SCHEDULES
from meshwright.verbs.schedule.named_schedules import ORIGIN, Scheduled, scheduled_as
from meshwright.verbs.schedule.schedule_request import (
    ScheduleRequest,
    limit_problems,
    make_lists,
    without_unused_options,
)
from meshwright.verbs.schedule.solve_chain import AUTO, ScheduleSearchOptions, solved

MOST_LIMITS = 32


@dataclass(frozen=True, slots=True)
class Compared:
    """Schedules of one pipeline for comparison, under each of ``limits``."""

    found: tuple[Scheduled, ...]
    limits: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the public form: one row for each."""
        return {"rows": [one.summary() for one in self.found], "origin": ORIGIN}

    def svg(self) -> str:
        """Return a picture: bubble against memory for several limits, else all timelines, one below the other."""
        from meshwright.present.schedule_picture import Panel, schedules_svg
        from meshwright.present.svg.line_chart import LineChart, line_chart

        if len(self.limits) > 1:
            lines: dict[str, list[tuple[float, float]]] = {}
            for one in self.found:
                if not one.over_limit:
                    point = (max(one.figures.peak_memory), one.figures.bubble_rate)
                    lines.setdefault(one.made.name, []).append(point)
            return line_chart(
                LineChart(
                    title="Bubble against memory",
                    across="peak memory of the fullest rank (a pass of a whole rank: 2)",
                    up="bubble, of the busiest rank's work",
                    lines={name: sorted(line) for name, line in lines.items()},
                    dots=True,
                    shown="{:.1%}".format,
                )
            )
        panels = [
            Panel(
                lists=one.made.lists,
                timeline=one.timeline,
                ways=one.made.shape.ways,
                title=one.title,
                kept=one.made.kept,
            )
            for one in self.found
        ]
        return schedules_svg(panels, title="Pipeline schedules")


def compared(
    names: Sequence[str],
    request: ScheduleRequest,
    limits: Sequence[float] = (),
    search: ScheduleSearchOptions | None = None,
) -> Compared:
    """Several schedules of one pipeline, under the request's limit or several. ``search``: how ``auto`` is searched.

    Raises InfeasibleError where none keeps to any limit.
    """
    several = tuple(dict.fromkeys(limits))
    requests = [replace(request, memory_limit=limit) for limit in several] or [request]
    problems = _unheeded(names, request)
    if len(several) > MOST_LIMITS:
        rule = f"are {len(several)}, more than {MOST_LIMITS}"
        problems.append(Problem("memory-limit", len(several), rule, "--memory-limit 4,8,16"))
    problems += [problem for one in requests[1:] for problem in limit_problems(one)]
    found: list[Scheduled] = []
    for name in names if len(several) <= MOST_LIMITS else ():
        found += (
            attempted(partial(_under_limits, name, requests, search or ScheduleSearchOptions()), problems)
            or ()
        )
    if problems:
        raise InputError(problem for i, problem in enumerate(problems) if problem not in problems[:i])
    if found and all(one.over_limit for one in found):
        peaks = {one.made.name: max(one.figures.peak_memory) for one in found}
        message = f"No schedule keeps to the memory limit {max(one.made.limit or 0 for one in found):g}."
        reasons = [f"{name} holds up to {peak:g}" for name, peak in peaks.items()]
        raise InfeasibleError(message, reasons, f"--memory-limit {min(peaks.values()):g}")
    return Compared(tuple(found), several)


def _under_limits(
    name: str, requests: Sequence[ScheduleRequest], search: ScheduleSearchOptions
) -> list[Scheduled]:
    """Return a schedule under each limit; limits under which nothing can be searched are left out."""
    if name == AUTO:
        return list(_searched(requests, search))
    kind = SCHEDULES.get(name)
    heeds = kind is not None and "memory_limit" in kind.depends_on
    own = [without_unused_options(name, request) for request in requests]
    if heeds:
        return [scheduled_as(make_lists(name, request, regroup=True)) for request in own]
    first = scheduled_as(make_lists(name, own[0], regroup=True))
    return [replace(first, made=replace(first.made, limit=request.memory_limit)) for request in own]


def _searched(requests: Sequence[ScheduleRequest], search: ScheduleSearchOptions) -> Iterator[Scheduled]:
    """Yield the lists that a search finds under each limit."""
    for request in requests:
        try:
            yield solved(replace(request, unit=None), search).played
        except InfeasibleError:
            if len(requests) == 1:
                raise


def _unheeded(names: Sequence[str], request: ScheduleRequest) -> list[Problem]:
    """Options that none of the schedules looks at."""
    if not names:
        return [Problem("schedule", None, "nothing to compare", "meshwright schedule compare 1f1b zb-h1")]
    kept = [without_unused_options(name, request) for name in names if name != AUTO]
    if AUTO in names:
        kept.append(replace(request, unit=None))
    return [
        Problem(option, value, "none of the schedules can have it", "leave it out")
        for option, value in (("chunks", request.chunks), ("unit", request.unit))
        if value is not None and all(getattr(one, option) is None for one in kept)
    ]
