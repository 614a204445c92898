"""The verb ``schedule``: one pipeline schedule with its figures, or all of them."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from meshwright.errors import InfeasibleError, Problem
from meshwright.schedules.activation_memory import levels
from meshwright.schedules.bubble_metrics import Figures, figures_of
from meshwright.schedules.custom.check_lists import within_limit
from meshwright.schedules.custom.csv_file import format_csv
from meshwright.schedules.custom.custom_schedule import CustomSchedule
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.timeline import Timeline, played
from meshwright.verbs.schedule.schedule_request import (
    MAX_PASSES,
    ScheduleLists,
    ScheduleRequest,
    chunk_words,
    make_lists,
    usual_chunks,
    without_unused_options,
)

EXAMPLE = ScheduleRequest(stages=8, micro_batches=32)
"""What the table of all schedules is made for; F, I and W take equally long, messages no time."""
PASS_S = {True: 5.5e-5, False: 1e-5}
"""What a pass takes to order and play, by whether its place depends on times; measured on one core of a server."""
PATIENCE_S = 5.0
ORIGIN = {
    "makespan": "played; the longest time from a rank's first start to its last end, in the unit of the times",
    "latency": "played; from the first start of all to the last end of all, in the unit of the times",
    "bubble_rate": "makespan / work of the busiest rank - 1; with equal stages that work is M(F + I + W)",
    "peak_memory": "counted; F of one micro-batch over a whole rank +2 (one of V chunks 2/V), I and W -1 each",
    "busy": "work of a rank / makespan",
    "messages": "counted; what each rank sends",
    "p2p_volume": "messages / those of 1f1b on as many ranks; null on a single rank",
    "parameters_held": "on the rank that has most / one share of the model",
}


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A schedule that was played."""

    made: ScheduleLists
    timeline: Timeline
    figures: Figures

    @property
    def over_limit(self) -> list[Problem]:
        """Ranks that hold more than they may."""
        made = self.made
        if made.limit is None:
            return []
        return within_limit(made.lists, made.shape, made.limit, made.kept)

    def summary(self) -> dict[str, Any]:
        """Return the schedule's shape and figures."""
        shape = self.made.shape
        return {
            "schedule": self.made.name,
            "ranks": shape.ranks,
            "micro_batches": shape.total,
            "chunks": shape.chunks,
            "chains": shape.ways.chains,
            **_plain(self.figures),
            "memory_limit": self.made.limit,
            "fits": not self.over_limit,
            "stages_given": self.made.stages_given,
            "note": self.note,
        }

    @property
    def note(self) -> str:
        """Return a remark on the figures of a named schedule, or why no plan can have other lists."""
        if self.made.name in SCHEDULES:
            return SCHEDULES[self.made.name].note
        refused = CustomSchedule(tuple(self.csv().splitlines())).problems
        return f"no plan can have these lists: {refused[0]}" if refused else ""

    def to_json(self) -> dict[str, Any]:
        """Return the public form; ``actions`` have ``start``, ``end`` and ``held`` (after)."""
        made = self.made
        shape = made.shape
        return self.summary() | {
            "placement": list(shape.placement),
            "times": _plain(made.ticks.units()),
            "origin": ORIGIN,
            "actions": [[str(action) for action in actions] for actions in made.lists],
            "start": [list(row) for row in self.timeline.start],
            "end": [list(row) for row in self.timeline.end],
            "held": [levels(actions, shape.ranks, shape.ways, made.kept) for actions in made.lists],
        }

    @property
    def title(self) -> str:
        """Return the schedule and its shape in a line."""
        shape = self.made.shape
        return f"{self.made.name}: {shape.ranks} ranks, {shape.total} micro-batches"

    def csv(self) -> str:
        """Return the lists, one row for each rank."""
        return format_csv(self.made.lists)

    def svg(self) -> str:
        """Return a picture of the timeline."""
        from meshwright.present.schedule_picture import schedule_svg

        made = self.made
        return schedule_svg(made.lists, self.timeline, made.shape.ways, title=self.title, kept=made.kept)


def _plain(figures: Any) -> dict[str, Any]:
    """Figures as JSON has them."""
    return {n: list(value) if isinstance(value, tuple) else value for n, value in asdict(figures).items()}


def scheduled(name: str, request: ScheduleRequest) -> Scheduled:
    """Simulate a schedule's lists. Raise InfeasibleError where a rank holds more than the limit."""
    found = scheduled_as(make_lists(name, request))
    if found.over_limit:
        most = max(found.figures.peak_memory)
        raise InfeasibleError(
            f"{name} holds up to {most:g}, more than the memory limit {found.made.limit:g}.",
            [problem.rule for problem in found.over_limit],
            f"--memory-limit {most:g}" + _heeding(name),
        )
    return found


def forewarned(names: Sequence[str], request: ScheduleRequest) -> Iterator[str]:
    """Yield a sentence on each schedule whose lists take long to generate and simulate."""
    for name in names:
        kind = SCHEDULES.get(name)
        if kind is None:
            continue
        chunks = without_unused_options(name, request).chunks or usual_chunks(kind)
        passes = 3 * chunks * (request.stages or 0) * (request.micro_batches or 0)
        seconds = passes * PASS_S[kind.automatic]
        if seconds > PATIENCE_S and passes <= MAX_PASSES:
            yield f"{name} has {passes:,} passes to order and play: some {seconds:.0f} s."


def _heeding(name: str) -> str:
    """Where else to look, unless this schedule heeds the limit itself."""
    names = [other for other, kind in SCHEDULES.items() if "memory_limit" in kind.depends_on]
    return f", or a schedule that heeds it: {', '.join(names)}" if names and name not in names else ""


def scheduled_as(made: ScheduleLists) -> Scheduled:
    """Simulate lists in ticks and convert the results to the reader's unit."""
    (ticks, in_unit), ways = made.ticks, made.shape.ways
    timeline = played(made.lists, ticks, ways)
    figures = figures_of(made.lists, timeline, ticks, ways)
    figures = replace(figures, makespan=figures.makespan / in_unit, latency=figures.latency / in_unit)
    return Scheduled(made, timeline.divided(in_unit), figures)


def listed() -> dict[str, Any]:
    """All schedules with their figures at one example."""
    rows = []
    for name, kind in SCHEDULES.items():
        found = scheduled_as(make_lists(name, EXAMPLE)).summary()
        words = {"allowed_chunks": chunk_words(kind), "summary": kind.summary}
        rows.append(found | words)
    return {"schedules": rows, "origin": ORIGIN}
