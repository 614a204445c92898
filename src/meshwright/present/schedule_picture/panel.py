"""The content of a picture: schedules with their timelines, and the reader's style."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from meshwright.present.schedule_picture.curve_data import Curve, curve_of
from meshwright.present.schedule_picture.palette import Tone, kind_shown
from meshwright.schedules.action import Action, ActionLists
from meshwright.schedules.activation_memory import levels
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.timeline import Timeline

Scheme = Literal["auto", "light", "dark"]
MAX_BOXES = 16_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """The style of a picture.

    ``scheme``: the reader's light or dark one, or one of them always. ``unit`` is what times are counted in, for the
    axis. ``messages``: draw them, where they are few enough to be seen. ``width`` of the picture in pixels; None: as
    wide as the boxes want to be. Of schedules with more actions than ``max_boxes`` only the beginning and the end are
    drawn.
    """

    scheme: Scheme = "auto"
    unit: str = ""
    messages: bool = False
    width: float | None = None
    max_boxes: int = MAX_BOXES


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One schedule of a picture, played: ``timeline`` holds the times of ``lists``, whose stages lie on ``ways``.

    ``kept`` is the part of what F keeps that I leaves for W. ``held`` is what every rank holds after each of its
    actions, in the unit that ``held_words`` say; without it that is counted in forward passes.
    """

    lists: ActionLists
    timeline: Timeline
    ways: StageChains
    title: str = ""
    subtitle: str = ""
    kept: float = 0.5
    held: Sequence[Sequence[float]] | None = None
    held_words: str = "activations held; forward of one micro-batch over a whole rank = 2"

    @property
    def ranks(self) -> int:
        """Rows of the chart."""
        return len(self.lists)

    @property
    def actions(self) -> int:
        """Boxes of the chart."""
        return sum(map(len, self.lists))

    @cached_property
    def begin(self) -> float:
        """The first start of all ranks."""
        return min((float(starts[0]) for starts in self.timeline.start if starts), default=0.0)

    @cached_property
    def end(self) -> float:
        """The last end of all ranks."""
        return max((float(max(ends)) for ends in self.timeline.end if ends), default=0.0)

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """Return the memory curve of every rank."""
        held = self.held or [levels(actions, self.ranks, self.ways, self.kept) for actions in self.lists]
        played = zip(self.lists, self.timeline.start, self.timeline.end, held, strict=True)
        return tuple(curve_of(*of_rank) for of_rank in played)

    def tone(self, rank: int, action: Action) -> Tone:
        """Return the colour of an action; actions outside the model's stages have no chunk."""
        kind = kind_shown(action.kind)
        if action.stage is None or action.stage >= self.ways.stages:
            return Tone(kind)
        way = action.stage // self.ways.length
        chunk = self._chunks[rank, way].index(action.stage)
        return Tone(kind, way, self.ways.chains, chunk, self._most_chunks)

    @cached_property
    def tones(self) -> frozenset[Tone]:
        """All colours that occur."""
        of_ranks = ({(a.kind, a.stage): a for a in actions}.values() for actions in self.lists)
        return frozenset(self.tone(rank, a) for rank, few in enumerate(of_ranks) for a in few)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """All kinds that occur."""
        return frozenset(action.kind for actions in self.lists for action in actions)

    @cached_property
    def _chunks(self) -> dict[tuple[int, int], list[int]]:
        """Stages of each rank on each way, in order."""
        found: dict[tuple[int, int], set[int]] = {}
        for rank, actions in enumerate(self.lists):
            for stage in {a.stage for a in actions if a.stage is not None and a.stage < self.ways.stages}:
                found.setdefault((rank, stage // self.ways.length), set()).add(stage)
        return {key: sorted(stages) for key, stages in found.items()}

    @cached_property
    def _most_chunks(self) -> int:
        return max(map(len, self._chunks.values()), default=1)
