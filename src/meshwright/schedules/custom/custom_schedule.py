"""Custom schedules: action lists that a user wrote for one number of ranks and micro-batches.

They are judged before anything is made of them, with every fault at once and where it stands: by ``check_lists.py``,
and by what plans ask for beyond that: equally many stages on each rank, backward passes that are all whole or all
split, and of two ways through the model those of ``dualpipe`` (a V, each half of the micro-batches one way). The
stages lie where the lists have them. A plan may state the most that a rank is to hold (``memory_limit``): lists are
held against it. Passes of a spread vocabulary may be among them (``vocabulary_passes.py``), for plans that say in
which form it is spread.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import PurePath

from meshwright.errors import InputError, Problem
from meshwright.schedules.action import Action, ActionLists
from meshwright.schedules.custom.check_lists import check_lists, first_of, within_limit
from meshwright.schedules.custom.check_messages import given_message_problems
from meshwright.schedules.custom.csv_file import lists_from_csv, without_messages
from meshwright.schedules.custom.inferred_shape import Shape, shape_of
from meshwright.schedules.custom.vocabulary_passes import (
    playable_barriers,
    vocabulary_pass_problems,
    without_vocabulary_passes,
)
from meshwright.schedules.pipeline import PASS_MEMORY, Pipeline, looped_placement, v_placement
from meshwright.schedules.schedule_kind import ScheduleKind

_LIST = re.compile(r"\blist (\d+)")
INLINE = "pipeline.schedule.lists"
"""Where a plan has lists that came from no file."""


@dataclass(frozen=True, slots=True)
class CustomSchedule:
    """The lines of a CSV file (``csv_file.py``), one for each rank; ``file`` is where they were read, if anywhere."""

    lines: tuple[str, ...]
    file: str | None = None

    @property
    def name(self) -> str:
        """Return the name for users."""
        return PurePath(self.file).name if self.file else f"lists {self.sha256[:8]}"

    @property
    def text(self) -> str:
        """They as a file has them."""
        return "".join(f"{line}\n" for line in self.lines)

    @property
    def sha256(self) -> str:
        """The digest of that text."""
        return sha256(self.text.encode()).hexdigest()

    @property
    def kind(self) -> ScheduleKind | None:
        """Return the properties of the lists as a table entry; None where they are invalid."""
        return _judged(self.lines).kind

    @property
    def problems(self) -> list[Problem]:
        """All that is wrong with them, by line."""
        return list(map(self._in_place, _judged(self.lines).problems))

    def beyond(self, memory_limit: float) -> list[Problem]:
        """Ranks that hold more than a limit, in times of what 1F1B holds; nothing of lists that are wrong."""
        lists, shape = _judged(self.lines).lists, _judged(self.lines).shape
        if shape is None or self.kind is None:
            return []
        problems = within_limit(lists, shape, memory_limit * PASS_MEMORY * len(lists), kept=0.5)
        return [replace(self._in_place(p), suggestion="W and B before more F") for p in problems]

    def _in_place(self, problem: Problem) -> Problem:
        """Return a problem in the words of the file: its lines begin with 1."""
        if not self.file:
            return replace(problem, field=self._place(problem.field))
        hint = _LIST.sub(lambda found: f"line {int(found[1]) + 1}", problem.suggestion)
        return replace(problem, field=self._place(problem.field), suggestion=hint)

    def _place(self, field: str) -> str:
        """``lists.2`` as a place in the file, or in the plan."""
        first, _, rank = field.partition(".")
        if first != "lists" or not rank:
            return self.file or INLINE
        return f"{self.file}, line {int(rank) + 1}" if self.file else f"{INLINE}.{rank}"


@dataclass(frozen=True, slots=True)
class _Judged:
    lists: ActionLists
    problems: tuple[Problem, ...]
    kind: ScheduleKind | None = None
    shape: Shape | None = None


@lru_cache(maxsize=64)
def _judged(lines: tuple[str, ...]) -> _Judged:
    try:
        given = lists_from_csv("\n".join(lines))
    except InputError as error:
        return _Judged([], error.problems)
    lists = without_messages(given)
    passes = without_vocabulary_passes(lists)
    problems = check_lists(passes)
    if problems:
        return _Judged(lists, tuple(problems))
    shape = shape_of(passes)
    problems = [*_unequal(shape), *_other_ways(shape), *first_of(_mixed(lists))]
    problems += given_message_problems(given, passes, shape)
    if not problems and passes != lists:
        problems = vocabulary_pass_problems(lists, shape)
    return _Judged(lists, tuple(problems), None if problems else _kind(lists, shape, passes != lists), shape)


def _unequal(shape: Shape) -> Iterator[Problem]:
    counts = Counter(shape.placement)
    for rank in range(shape.ranks):
        if counts[rank] != shape.chunks:
            rule = f"stages are on this rank, and {shape.chunks} on another: equally many are on each"
            yield Problem(f"lists.{rank}", counts[rank], rule, f"{shape.chunks} stages on every rank")


def _other_ways(shape: Shape) -> Iterator[Problem]:
    """Of two ways those whose ranks mirror each other, with the first half of the micro-batches on the first."""
    if shape.ways.chains == 1:
        return
    halves = tuple(tuple(shape.ways.micro_batches_of(s, shape.total)) for s in (0, shape.ways.length))
    if shape.placement != v_placement(shape.ranks, 2):
        rule = "two ways through the model lie otherwise than as 0, 1, … and …, 1, 0"
        yield Problem("lists", list(shape.placement), rule, f"stages as {list(v_placement(shape.ranks, 2))}")
    if shape.micro_batches != halves:
        rule = "of two ways the first takes the first half of the micro-batches, the other the rest"
        counts = [len(numbers) for numbers in shape.micro_batches]
        yield Problem("lists", counts, rule, f"number them so: {halves[0][0]}..{halves[0][-1]} the first way")


def _mixed(lists: ActionLists) -> Iterator[Problem]:
    """B in lists that also have I and W."""
    if any(action.kind == "W" for actions in lists for action in actions):
        for rank, actions in enumerate(lists):
            for action in actions:
                if action.kind == "B":
                    parts = " ".join(
                        str(Action(kind, action.stage, action.micro_batch)) for kind in ("I", "W")
                    )
                    rule = "is a whole backward pass, and others are split"
                    yield Problem(f"lists.{rank}", str(action), rule, f"{parts} in its place")


def _kind(lists: ActionLists, shape: Shape, shares: bool) -> ScheduleKind:
    size = shape.ranks, shape.chunks

    def make(pipeline: Pipeline) -> list[list[Action]]:
        assert (pipeline.ranks, pipeline.micro_batches) == (shape.ranks, shape.total)
        return [list(actions) for actions in lists]

    def placement(ranks: int, chunks: int) -> tuple[int, ...]:
        """Of another size there are no lists, and the stages lie anywhere."""
        return shape.placement if (ranks, chunks) == size else looped_placement(ranks, chunks)

    return ScheduleKind(
        make=make,
        in_flight=None,
        chunked=shape.chunks > 1,
        summary="lists that somebody wrote",
        steady_rounds=None,
        fixed_chunks=shape.chunks,
        placement=placement,
        split=any(action.kind == "W" for actions in lists for action in actions),
        depends_on=frozenset({"memory_limit"}),
        chains=shape.ways.chains,
        searched=False,
        only=(shape.ranks, shape.total),
        barriers=playable_barriers(lists, shape) if shares else (),
    )
