"""What a plan says of its schedule: a name of the table and the knobs that it turns, as one hashable value.

Whatever follows from a schedule (lists, costs, what is in flight) is looked up by this value, so that a knob can not be
forgotten on the way. A plan counts memory in times of 1F1B's on its first rank, P micro-batches of a whole rank: a
limit of 1 means 1F1B's memory in any pipeline. Here, and nowhere else, that becomes the unit of ``pipeline.py``.
"""

from dataclasses import dataclass

from meshwright.schedule import SCHEDULES
from meshwright.schedule.action import Action
from meshwright.schedule.generators import Aspect, ScheduleKind
from meshwright.schedule.pipeline import PASS_MEMORY, Knobs
from meshwright.schedule.times import StageTimes


@dataclass(frozen=True, slots=True)
class ScheduleChoice:
    """``memory_limit``: in times of what 1F1B holds; ``unit``: micro-batches that go together; None: as usual."""

    name: str
    memory_limit: float | None = None
    unit: int | None = None

    def __str__(self) -> str:
        said = ", ".join(f"{knob.replace('_', ' ')} {value:g}" for knob, value in self.turned.items())
        return f"{self.name} ({said})" if said else self.name

    @property
    def kind(self) -> ScheduleKind:
        """What the table says of the name, one of its names."""
        return SCHEDULES[self.name]

    @property
    def turned(self) -> dict[Aspect, float]:
        """The knobs that are not as usual, with their values."""
        knobs: dict[Aspect, float | None] = {"memory_limit": self.memory_limit, "unit": self.unit}
        return {knob: value for knob, value in knobs.items() if value is not None}

    @property
    def heeded(self) -> frozenset[Aspect]:
        """The knobs that are turned and that the schedule looks at."""
        return self.kind.looks_at & self.turned.keys()

    @property
    def usual(self) -> bool:
        """No knob is turned."""
        return not self.turned

    def knobs(self, ranks: int) -> Knobs:
        """The knobs as generators have them."""
        limit = self.memory_limit
        return Knobs(
            memory_limit=None if limit is None else limit * ranks * PASS_MEMORY,
            unit=self.unit,
        )

    def lists(
        self, ranks: int, micro_batches: int, chunks: int, times: StageTimes | None = None
    ) -> list[list[Action]]:
        """As ``ScheduleKind.lists``, with the plan's knobs."""
        return self.kind.lists(ranks, micro_batches, chunks, times, self.knobs(ranks))

    def in_flight(self, rank: int, ranks: int, micro_batches: int, chunks: int) -> int | None:
        """As the kind declares it for usual knobs; None where only the lists say it."""
        declared = self.kind.in_flight
        return declared(rank, ranks, micro_batches, chunks) if declared and self.usual else None

    def period(self, ranks: int) -> int:
        """Micro-batches after which the lists of a long pipeline repeat: a unit that is named, or a round."""
        return self.unit if self.unit and "unit" in self.heeded else ranks

    @property
    def steady_rounds(self) -> int | None:
        """As the kind has it for usual knobs; None where it is not known."""
        return self.kind.steady_rounds if self.usual else None

    def unit_size(self, ranks: int, micro_batches: int) -> int | None:
        """How many micro-batches go through a rank's stages together; None where the schedule has no units."""
        return self.kind.unit(ranks, micro_batches, self.knobs(ranks))

    def fault(self, ranks: int, micro_batches: int) -> str | None:
        """Why there are no lists for so many ranks and micro-batches; None where there are."""
        return self.kind.fault(ranks, micro_batches, self.knobs(ranks))
