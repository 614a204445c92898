"""Comparison of placements of the vocabulary on one pipeline of equal layers, by simulating their lists.

Times are in forward passes of a layer, memory in activations of a layer for one micro-batch: F of a stage holds as many
as it has layers. What S keeps for T is counted apart (``waiting``), since a share of the logits compares with no layer,
and so are the two tables of embedding and head. Ignored: that smaller products take longer than their part.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from meshwright.play.in_flight import most_in_flight
from meshwright.schedules.action import Action, ActionLists
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.schedule_kind import ScheduleKind
from meshwright.schedules.stage_times import ShareTimes, StageTimes
from meshwright.schedules.timeline import run
from meshwright.schedules.vocabulary import FORMS
from meshwright.schedules.vocabulary.pass_times import PassTimes, durations

AT_ENDS = ("ends", "redistributed")
PLACES = (*AT_ENDS, *FORMS)
"""At the ends with equal stages, there with layers moved away from the head, and spread in every form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementCase:
    """A pipeline of ``layers`` layers, with a head that takes as long as ``head`` of them.

    F, I and W of a layer take equally long, ``message`` is what a message takes. With one barrier T of up to ``late``
    micro-batches may wait on a rank.
    """

    kind: ScheduleKind
    ranks: int
    micro_batches: int
    layers: int
    head: float
    chunks: int = 1
    message: float = 0.0
    late: int = 1

    @property
    def work(self) -> float:
        """The work of a rank if all are equally busy, in forward passes of a layer."""
        return self.micro_batches * 3 * (self.layers + self.head) / self.ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementResult:
    """Figures of one placement of the vocabulary; ``layers`` has one entry per stage, other tuples one per rank.

    ``utilisation`` is the work of a rank, if all were equally busy, over the makespan. ``in_flight`` counts passes of
    stages, ``activations`` layers of micro-batches, ``waiting`` micro-batches between S and T, ``tables`` how much of
    the two tables a rank has.
    """

    place: str
    layers: tuple[int, ...]
    makespan: float
    utilisation: float
    in_flight: tuple[int, ...]
    activations: tuple[float, ...]
    waiting: tuple[int, ...]
    tables: tuple[float, ...]


def compare_placements(case: PlacementCase, places: Iterable[str] = PLACES) -> list[PlacementResult]:
    """Simulate the same work with the vocabulary in each of ``places``; refuse a form that the schedule cannot have."""
    return [
        _placed(place, _at_ends(place, case) if place in AT_ENDS else _spread(place, case))
        for place in places
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arranged:
    case: PlacementCase
    layers: tuple[int, ...]
    tables: tuple[float, ...]
    times: StageTimes
    lists: ActionLists
    ways: StageChains
    share: ShareTimes | None = None


def _at_ends(place: str, case: PlacementCase) -> _Arranged:
    kind, ranks, chunks = case.kind, case.ranks, case.chunks
    placement = kind.placement(ranks, chunks)
    layers = layers_of_stages(case.layers, placement, case.head if place == "redistributed" else 0.0)
    times = stage_times(layers, _passes(1.0), _passes(case.head), case.message)
    return _Arranged(
        case=case,
        layers=layers,
        tables=tuple(0.0 + (rank == placement[0]) + (rank == placement[-1]) for rank in range(ranks)),
        times=times,
        lists=kind.lists(ranks, case.micro_batches, chunks, times),
        ways=kind.ways(ranks, chunks),
    )


def _spread(place: str, case: PlacementCase) -> _Arranged:
    form, kind, ranks, chunks = FORMS[place], case.kind, case.ranks, case.chunks
    layers = layers_of_stages(case.layers, kind.placement(ranks, chunks))
    times = stage_times(layers, _passes(1.0), None, case.message)
    usual = kind.lists(ranks, case.micro_batches, chunks, times)
    pipeline = replace(kind.pipeline(ranks, case.micro_batches, chunks), times=times)
    ways, share = kind.ways(ranks, chunks), form.share(_passes(case.head), ranks)
    return _Arranged(
        case=case,
        layers=layers,
        tables=(2 / ranks,) * ranks,
        times=times,
        lists=form.lists(usual, pipeline, ways, share, case.late),
        ways=form.ways(ways, ranks),
        share=share,
    )


def _placed(place: str, found: _Arranged) -> PlacementResult:
    case, lists, times = found.case, found.lists, found.times
    makespan = run(lists, durations(times, found.share), case.message, found.ways).makespan
    return PlacementResult(
        place=place,
        layers=found.layers,
        makespan=makespan,
        utilisation=case.work / makespan,
        in_flight=tuple(map(most_in_flight, lists)),
        activations=tuple(most_activations(actions, found.layers, times.kept) for actions in lists),
        waiting=tuple(map(most_waiting, lists)),
        tables=found.tables,
    )


def most_activations(actions: Iterable[Action], layers: Sequence[int], kept: float = 0.5) -> float:
    """Return the most layers of micro-batches whose activations a rank holds; I leaves the part ``kept`` for W."""
    parts = {"F": 1.0, "B": -1.0, "I": kept - 1.0, "W": -kept}
    return max(accumulate(parts[a.kind] * layers[a.stage or 0] for a in actions if a.kind in parts))


def most_waiting(actions: Iterable[Action]) -> int:
    """Return the most micro-batches that are between S and T on a rank."""
    steps = {"S": 1, "T": -1}
    return max(accumulate((steps.get(action.kind, 0) for action in actions), initial=0))


def _passes(seconds: float) -> PassTimes:
    return PassTimes(seconds, seconds, seconds)


def layers_of_stages(layers: int, placement: Sequence[int], head: float = 0.0) -> tuple[int, ...]:
    """Layers of every stage such that the busiest rank is as little busy as can be; a stage may have none.

    One by one they go to the least busy rank, there to the least busy stage, of equals the first. No other choice does
    better: when the busiest rank got its last layer, all others were as busy as it was, so that in a choice with less
    for the busiest one none could have more layers than here, and that one would have fewer.
    """
    last = len(placement) - 1
    counts = [0] * len(placement)
    of_stage = [head if stage == last else 0.0 for stage in range(len(placement))]
    of_rank = [head if rank == placement[last] else 0.0 for rank in range(max(placement) + 1)]
    for _ in range(layers):
        stage = min(range(len(placement)), key=lambda s: (of_rank[placement[s]], of_stage[s]))
        counts[stage] += 1
        of_stage[stage] += 1
        of_rank[placement[stage]] += 1
    return tuple(counts)


def head_in_layers(vocab: int, hidden: int, seq_len: int) -> float:
    """Return the time of the head in layers."""
    return vocab / (12 * hidden * (1 + seq_len / (6 * hidden)))


def stage_times(
    layers: Sequence[int], layer: PassTimes, head: PassTimes | None = None, message: float = 0.0
) -> StageTimes:
    """Of stages with so many layers each; ``head`` lies on the last one, if on any."""
    last = len(layers) - 1
    forward, input_, weight = (
        tuple(count * of_layer + (of_head if stage == last else 0) for stage, count in enumerate(layers))
        for of_layer, of_head in zip(_three(layer), _three(head or PassTimes(0, 0, 0)), strict=True)
    )
    return StageTimes(forward, input_, weight, message)


def _three(times: PassTimes) -> tuple[float, float, float]:
    return (times.forward, times.input, times.weight)
