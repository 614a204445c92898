"""Schedules of equal ranks, played: lists by name, times of a micro-batch over a whole rank, figures in their unit."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby

from meshwright.schedules.action import Action
from meshwright.schedules.bubble_metrics import Figures, figures_of
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.pipeline import PASS_MEMORY, USUAL, Knobs
from meshwright.schedules.timeline import played
from meshwright.verbs.schedule.pass_times import RankTimes, for_pipeline

EQUAL = RankTimes(1, 1, 1)


@dataclass(frozen=True, kw_only=True)
class Pipe:
    """A pipeline of equal ranks; I leaves the part ``kept`` of what F keeps for W."""

    ranks: int
    micro_batches: int
    chunks: int = 1
    times: RankTimes = EQUAL
    kept: float = 0.5

    @property
    def work(self) -> float:
        """What every rank has to do."""
        return self.micro_batches * sum(self.times[:3])


@dataclass(frozen=True)
class Shown:
    """A schedule's lists and figures."""

    pipe: Pipe
    lists: list[list[Action]]
    ways: StageChains
    figures: Figures

    @property
    def bubble(self) -> float:
        """The makespan beyond a rank's work."""
        return self.figures.makespan - self.pipe.work

    @property
    def bubble_part(self) -> float:
        """The bubble as a part of the makespan, which is how the Zero Bubble paper has it."""
        return self.bubble / self.figures.makespan

    @property
    def micro_batches_held(self) -> float:
        """The most that a rank holds, in micro-batches over a whole rank."""
        return max(self.figures.peak_memory) / PASS_MEMORY


def play(name: str, pipe: Pipe, knobs: Knobs = USUAL) -> Shown:
    """Make the lists of a schedule and play them; times are whole numbers of ticks meanwhile."""
    kind = SCHEDULES[name]
    ways = kind.ways(pipe.ranks, pipe.chunks)
    ticks = for_pipeline(pipe.times, pipe.ranks, ways)
    times = replace(ticks.times, kept=pipe.kept)
    units = replace(ticks.units(), kept=pipe.kept)
    lists = kind.lists(pipe.ranks, pipe.micro_batches, pipe.chunks, units, knobs)
    found = figures_of(lists, played(lists, times, ways), times, ways)
    length = {name: getattr(found, name) / ticks.in_unit for name in ("makespan", "latency")}
    return Shown(pipe, lists, ways, replace(found, **length))


def gathers(lists: Iterable[Iterable[Action]]) -> int:
    """How often parameters of a stage are gathered: once for passes of a stage in a row, F and B or I apart.

    W needs no parameters, and what other kinds of passes stand between does not matter.
    """
    orders = ([a.stage for a in actions if a.kind == kind] for actions in map(list, lists) for kind in "FBI")
    return sum(1 for stages in orders for _ in groupby(stages))
