"""The measured runs of Vocabulary Parallelism (Yeung et al., arXiv 2411.05288) beside played lists and the cost model.

A group is one pipeline and one vocabulary, and what differs is where the vocabulary lies: at the ends (``baseline``),
there with layers moved away from the head (``redis``), or spread over all ranks in one of three forms. Lists are played
with the cost model's times of every stage, of a message, and of a rank's share of the vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from math import isnan

from accuracy import table

from meshwright.play.in_flight import most_in_flight
from meshwright.schedules.action import Action
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.schedule_kind import ScheduleKind
from meshwright.schedules.stage_times import ShareTimes, StageTimes
from meshwright.schedules.timeline import run as play_lists
from meshwright.schedules.vocabulary import FORMS
from meshwright.schedules.vocabulary.pass_times import durations
from schedule_page.models import Measured, measured_runs
from schedule_page.order import CELLS, Order, all_right, order_of, summary, within
from schedule_page.section import Section, Target

SOURCE = "Vocabulary Parallelism"
PLACES = ("baseline", "redis", *FORMS)
WITHIN = 0.05


@dataclass(frozen=True)
class Played:
    """Lists of a pipeline with its vocabulary, and how long they take."""

    lists: list[list[Action]]
    makespan: float


def played(
    kind: ScheduleKind, shape: tuple[int, int, int], times: StageTimes, share: ShareTimes | None, place: str
) -> Played:
    """Lists of P, M and V; with a form of ``place`` S and T of a rank's ``share`` are in them."""
    ranks, _, chunks = shape
    lists, ways = kind.lists(*shape, times), kind.ways(ranks, chunks)
    if place in FORMS:
        assert share is not None
        form = FORMS[place]
        pipeline = replace(kind.pipeline(*shape), times=times)
        lists, ways = form.lists(lists, pipeline, ways, share), form.ways(ways, ranks)
    return Played(lists, play_lists(lists, durations(times, share), times.message, ways).makespan)


@dataclass(frozen=True)
class Placed:
    """A run with the place of its vocabulary."""

    of: Measured

    @property
    def place(self) -> str:
        """Where the vocabulary lies."""
        return self.of.run.chosen.vocab_parallel or PLACES[0]

    @property
    def shape(self) -> tuple[int, int, int]:
        """P, M and V."""
        group = self.of.group
        return group.ranks, int(group.micro_batches[0]), group.chunks

    @cached_property
    def played(self) -> Played:
        """The run's lists with the cost model's times."""
        share = self.of.group.share
        times = None if share is None else ShareTimes(*(float(share.seconds[kind][0]) for kind in ("S", "T")))
        return played(SCHEDULES[self.of.schedule], self.shape, self.of.stage_times, times, self.place)

    @property
    def lists_s(self) -> float:
        """Seconds of a step: the makespan, and what the cost model says is outside of it."""
        return self.played.makespan + self.of.outside_s

    @property
    def in_flight(self) -> float:
        """The most micro-batches on a rank."""
        return max(map(most_in_flight, self.played.lists)) / self.shape[2]

    @property
    def key(self) -> tuple[str, int, int, int]:
        """What the runs of a group share."""
        given = self.of.run.given
        return self.of.schedule, given.devices, given.seq_len, given.vocab or 0


def groups_of(path: str) -> list[list[Placed]]:
    """The runs of a table by pipeline and vocabulary."""
    ordered = sorted(
        map(Placed, measured_runs(path, SOURCE)), key=lambda run: (run.key, PLACES.index(run.place))
    )
    return [list(group) for _, group in groupby(ordered, key=lambda run: run.key)]


def orders(groups: Sequence[Sequence[Placed]]) -> tuple[list[Order], list[Order]]:
    """The order of every group by lists and by the cost model; runs that were out of memory have no time."""
    known = [[run for run in group if not isnan(run.of.measured_s)] for group in groups]
    measured = [[run.of.measured_s for run in group] for group in known]
    by_lists = [order_of(m, [run.lists_s for run in group]) for m, group in zip(measured, known, strict=True)]
    by_model = [
        order_of(m, [run.of.step_s for run in group]) for m, group in zip(measured, known, strict=True)
    ]
    return by_lists, by_model


def times(groups: Sequence[Sequence[Placed]]) -> Section:
    """Step times and their order."""
    parts, targets = [], []
    for schedule, found in groupby(groups, key=lambda group: group[0].of.schedule):
        of_schedule = list(found)
        by_lists, by_model = orders(of_schedule)
        parts.append(_times_table(schedule, of_schedule, by_lists, by_model))
        for by, of in (("by lists", by_lists), ("by the cost model", by_model)):
            what = f"pairs of {schedule} by place of the vocabulary in order, {by}"
            targets.append(Target(what, "all", summary(of)[1], all_right(of)))
    text = f"""\
Runs of Vocabulary Parallelism (arXiv 2411.05288) on A100-80GB, 128 micro-batches, by place of the
vocabulary. Each cell holds seconds of a step: measured (published as MFU) / by our lists / by the cost
model (`validate`), which plays them with all exchanges. *Lists*:
`schedule/vocabulary` puts S and T into the schedule's lists,
which are then played with the cost model's times of stages, messages and shares; what it says of optimizer
and tied tables is added. Constants of the cost model were fitted on these runs. A group is one row;
orders are by lists / by the cost model.

{"".join(parts)}"""
    return Section("Vocabulary Parallelism's runs: step times and order", text, tuple(targets))


def _times_table(
    schedule: str, groups: Sequence[Sequence[Placed]], by_lists: Sequence[Order], by_model: Sequence[Order]
) -> str:
    places = [place for place in PLACES if any(run.place == place for run in groups[0])]
    rows = []
    for group, lists, model in zip(groups, by_lists, by_model, strict=True):
        cells = [f"{_seconds(run)} / {run.lists_s:.2f} / {run.of.step_s:.2f}" for run in group]
        rows.append([*names(group), *cells, *_both(lists.cells, model.cells)])
    rows.append(["all", "", "", *[""] * len(places), *_both(summary(by_lists), summary(by_model))])
    header = ["P", "seq", "vocabulary", *places, *CELLS]
    known = [run for group in groups for run in group if not isnan(run.of.measured_s)]
    measured = [run.of.measured_s for run in known]
    lists_within = within([run.lists_s for run in known], measured, WITHIN)
    model_within = within([run.of.step_s for run in known], measured, WITHIN)
    return f"""### {schedule}

Step times within {WITHIN:.0%}: by lists {lists_within}; by the cost model {model_within}.

{table(header, rows)}
"""


def _both(lists: Sequence[str], model: Sequence[str]) -> list[str]:
    return [f"{one} / {other}" for one, other in zip(lists, model, strict=True)]


def names(group: Sequence[Placed]) -> list[object]:
    """What a group's runs share."""
    given = group[0].of.run.given
    return [given.devices, given.seq_len, given.vocab]


def _seconds(run: Placed) -> str:
    return "oom" if isnan(run.of.measured_s) else f"{run.of.measured_s:.2f}"
