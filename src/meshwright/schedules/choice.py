"""A plan's choice of a schedule: a name of the table and its knobs, as one hashable value.

Whatever follows from a schedule (lists, costs, what is in flight) is looked up by this value, so that a knob can not be
forgotten on the way. A plan counts memory in times of 1F1B's on its first rank, P micro-batches of a whole rank: a
limit of 1 means 1F1B's memory in any pipeline. Here, and nowhere else, that becomes the unit of ``pipeline.py``.

With a form of ``vocabulary`` the lists are those of a vocabulary that is spread over the ranks, embedding and head, and
they depend on the times of all passes; lists that somebody wrote have these passes themselves.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from meshwright.schedules.action import Action
from meshwright.schedules.custom.custom_schedule import CustomSchedule
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.pipeline import PASS_MEMORY, Knobs, looped_placement
from meshwright.schedules.schedule_kind import Aspect, ScheduleKind
from meshwright.schedules.stage_times import StageTimes, equal_times
from meshwright.schedules.vocabulary import FORMS
from meshwright.schedules.vocabulary.embedding_passes import with_embedding_passes
from meshwright.schedules.vocabulary.pass_times import PassTimes
from meshwright.schedules.vocabulary.vocabulary_form import VocabularyForm

StepValidation = Literal["before", "after"]
"""Whether a rank knows the norm of all gradients before it takes its optimizer step, or hears of it afterwards."""


@dataclass(frozen=True, slots=True)
class ScheduleChoice:
    """``memory_limit``: in times of what 1F1B holds; ``unit``: micro-batches that go together; None: as usual.

    ``in_flight``: the most passes (micro-batch × chunk) that the first rank holds; None: as many as the lists do.
    ``vocabulary``: the form in which it is spread over the ranks, None where it lies at the ends. ``written``: lists
    that stand for those of a name. ``step_validation``: when an optimizer step is held against the norm of all
    gradients; None: as the stack does it. It changes no pass of a list.
    """

    name: str
    memory_limit: float | None = None
    unit: int | None = None
    vocabulary: str | None = None
    written: CustomSchedule | None = None
    step_validation: StepValidation | None = None
    in_flight: int | None = None

    def __str__(self) -> str:
        knobs = [f"{knob.replace('_', ' ')} {value:g}" for knob, value in self.given_knobs.items()]
        knobs += [f"step validated {self.step_validation}"] if self.step_validation else []
        name = f"{self.name}+{self.vocabulary}" if self.vocabulary else self.name
        return f"{name} ({', '.join(knobs)})" if knobs else name

    @property
    def kind(self) -> ScheduleKind:
        """Return the table's entry of a known name, or the properties of custom lists."""
        kind = known_kind(self)
        assert kind is not None, f"{self.name} is no schedule"
        return kind

    @property
    def given_knobs(self) -> dict[Aspect, float]:
        """The knobs that are not as usual, with their values."""
        knobs: dict[Aspect, float | None] = {
            "memory_limit": self.memory_limit,
            "unit": self.unit,
            "in_flight": self.in_flight,
        }
        return {knob: value for knob, value in knobs.items() if value is not None}

    @property
    def heeded(self) -> frozenset[Aspect]:
        """The knobs that are turned and that the schedule looks at."""
        return self.kind.depends_on & self.given_knobs.keys()

    @property
    def usual(self) -> bool:
        """The lists are those of the name alone."""
        return not self.given_knobs and self.form is None and self.written is None

    @property
    def form(self) -> VocabularyForm | None:
        """The form of a vocabulary that is spread; None for a name that the table does not have."""
        return None if self.vocabulary is None else FORMS.get(self.vocabulary)

    @property
    def automatic(self) -> bool:
        """Return true if lists depend on the times of the stages."""
        return self.kind.automatic or self.form is not None

    def ways(self, ranks: int, chunks: int) -> StageChains:
        """Return the path of micro-batches through the stages, and the place of the vocabulary."""
        usual = self.kind.ways(ranks, chunks)
        return replace(self.form.ways(usual, ranks), rows=True) if self.form else usual

    def knobs(self, ranks: int) -> Knobs:
        """Return the knobs in the form of generators."""
        limit = self.memory_limit
        return Knobs(
            memory_limit=None if limit is None else limit * ranks * PASS_MEMORY,
            unit=self.unit,
            in_flight=self.in_flight,
        )

    def lists(
        self, ranks: int, micro_batches: int, chunks: int, times: StageTimes | None = None
    ) -> list[list[Action]]:
        """As ``ScheduleKind.lists``, with the plan's knobs and its vocabulary."""
        if self.form is None or self.kind.barriers:
            return self.kind.lists(ranks, micro_batches, chunks, times, self.knobs(ranks))
        return [list(actions) for actions in _spread(self, ranks, micro_batches, chunks, times)]

    def declared_in_flight(self, rank: int, ranks: int, micro_batches: int, chunks: int) -> int | None:
        """As the kind declares it for usual knobs; None where only the lists say it."""
        declared = self.kind.in_flight
        return declared(rank, ranks, micro_batches, chunks) if declared and self.usual else None

    def period(self, ranks: int) -> int:
        """Micro-batches after which the lists of a long pipeline repeat: a unit that is named, or a round.

        Lists that are written need not repeat anything: all of their micro-batches.
        """
        if self.kind.only:
            return self.kind.only[1]
        return self.unit if self.unit and "unit" in self.heeded else ranks

    @property
    def steady_rounds(self) -> int | None:
        """As the kind has it for usual knobs; None where it is not known."""
        return self.kind.steady_rounds if self.usual else None

    def unit_size(self, ranks: int, micro_batches: int, chunks: int) -> int | None:
        """Return the micro-batches that pass a rank's stages as one unit; None without units."""
        return self.kind.unit(ranks, micro_batches, chunks, self.knobs(ranks))

    def fault(self, ranks: int, micro_batches: int) -> str | None:
        """Why there are no lists for so many ranks and micro-batches; None where there are."""
        return self.kind.fault(ranks, micro_batches, self.knobs(ranks))


def validates_afterwards(choice: ScheduleChoice, usually: bool, ranks: int) -> bool:
    """Return true if an optimizer step is validated after it; ``usually``: the default of split backward."""
    validation = choice.step_validation
    return ranks > 1 and (usually and choice.kind.split if validation is None else validation == "after")


def known_kind(choice: ScheduleChoice) -> ScheduleKind | None:
    """Return the properties of a schedule; None for an unknown name or invalid lists."""
    return choice.written.kind if choice.written else SCHEDULES.get(choice.name)


def stage_chains(choice: ScheduleChoice) -> int:
    """Count the chains of stages, each a whole model; 1 for an unknown schedule."""
    kind = known_kind(choice)
    return kind.chains if kind else 1


def stage_placement(choice: ScheduleChoice, ranks: int, chunks: int) -> tuple[int, ...]:
    """Pipeline rank of each stage; a loop where the schedule is not known."""
    kind = known_kind(choice)
    return (kind.placement if kind else looped_placement)(ranks, chunks)


@lru_cache(maxsize=256)
def _spread(
    choice: ScheduleChoice, ranks: int, micro_batches: int, chunks: int, times: StageTimes | None
) -> tuple[tuple[Action, ...], ...]:
    """Return lists with all passes of a spread vocabulary; without times the head takes as long as a stage."""
    kind, form, knobs = choice.kind, choice.form, choice.knobs(ranks)
    assert form is not None
    times = times or equal_times(ranks * chunks)
    share = times.share or form.share(PassTimes(1.0, 1.0, 1.0), ranks)
    times = replace(times, share=share)
    pipeline = replace(kind.pipeline(ranks, micro_batches, chunks, times, knobs), times=times)
    usual = kind.lists(ranks, micro_batches, chunks, times, knobs)
    ways = kind.ways(ranks, chunks)
    lists = form.lists(usual, pipeline, ways, share)
    return tuple(map(tuple, with_embedding_passes(lists, pipeline.placement, times, form.ways(ways, ranks))))
