"""Exact times of any schedule's action lists, simulated on arrays of stage times.

The order in which actions can run does not depend on durations, so ``play/execution_order.py`` finds it once per
(schedule, P, M, V), and ``play/player.py`` plays it: each action is one maximum and one sum over all plans at once.
Beyond ``ROUNDS`` rounds of P micro-batches, or of a unit that the plan names, the schedule is in its periodic regime (a
max-plus linear system; Baccelli et al. 1992, theorem 3.28) and the makespan grows by a constant for every further
round: it is extrapolated from the last two, and by no less than the work of the busiest rank, which a pipeline with one
slow stage comes to only after many rounds. Automatic schedules have lists of their own for every distinct (rounded) set
of stage times.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.pipeline_time.exchange_times import ExchangePlaces, ExchangeTimes
from meshwright.cost.pipeline_time.offload_copies import OffloadCopies, lists_with_offload_copies
from meshwright.play.clocks import FLOATS, Clocks, Numbers
from meshwright.play.copy_streams import CopyStreams
from meshwright.play.data_parallel_streams import DataParallelStreams
from meshwright.play.execution_order import MESSAGE, Step, execution_order, order_with
from meshwright.play.player import Player
from meshwright.program.layouts.rank_mesh import Ints
from meshwright.schedules.action import PASS_KINDS
from meshwright.schedules.activation_offload import OffloadedStages
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.stage_times import StageTimes

Array = NDArray[np.float64]
ROUNDS = 3
FEW = 4
"""So many plans are played one by one."""
MANY = 512
"""So many plans are played at once at most; more would take memory for all ends of their passes."""
SLOW_ROUNDS = 8
"""Lists that are made by playing settle later, and so do those with exchanges of units or copies to the host."""


class SharePasses(NamedTuple):
    """Seconds of a spread vocabulary's passes on every rank, (n, P) each, and of what brings something to all, (n,)."""

    passes: Mapping[str, Array]
    exchanges: Mapping[str, Array]

    def take(self, rows: NDArray[np.int64]) -> "SharePasses":
        """Return the plans at ``rows``."""
        return SharePasses(
            *({kind: seconds[rows] for kind, seconds in of.items()} for of in (self.passes, self.exchanges))
        )


class Passes(NamedTuple):
    """Seconds of the passes of every stage, (n, K) each; with ``weight`` the backward pass is I and W, else B.

    ``times`` holds what an automatic schedule looks at, one entry per plan; ``exchanges`` what units exchange;
    ``share`` where the vocabulary is spread; ``copies`` of activations to the host and back.
    """

    forward: Array
    backward: Array
    weight: Array | None = None
    times: Sequence[StageTimes] | None = None
    exchanges: ExchangeTimes | None = None
    share: SharePasses | None = None
    copies: OffloadCopies | None = None

    def take(self, rows: NDArray[np.int64]) -> "Passes":
        """Return the plans at ``rows``."""
        weight = None if self.weight is None else self.weight[rows]
        times = None if self.times is None else [self.times[row] for row in rows]
        exchanges = None if self.exchanges is None else self.exchanges.take(rows)
        share = None if self.share is None else self.share.take(rows)
        copies = None if self.copies is None else self.copies.take(rows)
        return Passes(self.forward[rows], self.backward[rows], weight, times, exchanges, share, copies)

    def inputs(self, row: int) -> tuple[Any, ...]:
        """Return all that a plan's lists are played with, as one hashable value."""
        found: list[Any] = [times[row].tobytes() for times in self.by_kind.values()]
        if self.share:
            found += [float(seconds[row]) for seconds in self.share.exchanges.values()]
        if self.exchanges:
            found += self.exchanges.inputs(row)
        if self.copies:
            found += [self.copies.copied, self.copies.seconds[row].tobytes()]
        return tuple(found)

    @property
    def whole(self) -> Array:
        """All passes of a micro-batch over stages: (n, K)."""
        both = self.forward + self.backward
        return both if self.weight is None else both + self.weight

    @property
    def of_share(self) -> Array:
        """All passes of a micro-batch over a share of the vocabulary: (n, P), or 0."""
        return np.sum(list(self.share.passes.values()), axis=0) if self.share else np.zeros((1, 1))

    @property
    def by_kind(self) -> dict[str, Array]:
        """Seconds by kind and stage; shares count as stages K + rank."""
        weight = np.zeros_like(self.backward) if self.weight is None else self.weight
        found = {"F": self.forward, "B": self.backward, "I": self.backward, "W": weight}
        before = np.zeros_like(self.forward)
        share = self.share.passes if self.share else {}
        return found | {kind: np.concatenate([before, seconds], 1) for kind, seconds in share.items()}


class Span(NamedTuple):
    """Times at which ranks begin their first and end their last pass, (n, P) each, and stages end, (n, K).

    With exchanges of units a rank ends when these have ended too.
    """

    begin: Array
    end: Array
    stage_end: Array

    def take(self, rows: slice) -> "Span":
        """Return the plans at ``rows``."""
        return Span(*(times[rows] for times in self))


def played_seconds(
    schedule: ScheduleChoice,
    forward: Array,
    backward: Array,
    message: Array,
    micro_batches: NDArray[np.int64],
    ranks: int,
) -> Array:
    """Makespan from the first start to the last end: (n, K), (n, K), (n,), (n,) → (n,)."""
    return played_span(schedule, Passes(forward, backward), message, micro_batches, ranks).end.max(1)


def played_span(
    schedule: ScheduleChoice, passes: Passes, message: Array, micro_batches: NDArray[np.int64], ranks: int
) -> Span:
    """First starts and last ends of the ranks."""
    sizes = ranks, ranks, passes.forward.shape[1]
    begin, end, stage_end = (np.empty((len(message), size)) for size in sizes)
    for count, times, rows in equal_lists(micro_batches, passes.times):
        some = passes.take(rows)
        arguments = schedule, some, message[rows], ranks, times
        settled = times is None and passes.exchanges is None and passes.copies is None
        rounds, period = ROUNDS if settled else SLOW_ROUNDS, schedule.period(ranks)
        back = rounds // ROUNDS * period
        played = count  # lists with a spread vocabulary, or with units cut to their number, are made in full anyway
        if schedule.form is None and "in_flight" not in schedule.heeded:
            played = int(periodic_micro_batches(count, period, rounds))
        begin[rows], end[rows], stage_end[rows] = _play(*arguments, played)
        if played < count:
            before = _play(*arguments, played - back).end.max(1)
            pace = np.maximum((end[rows].max(1) - before) / back, _busiest(schedule, some, ranks))
            end[rows] += (count - played) * pace[:, None]
            stage_end[rows] += (count - played) * pace[:, None]
    return Span(begin, end, stage_end)


def played_ends(
    schedule: ScheduleChoice, passes: Passes, message: Array, micro_batches: NDArray[np.int64], ranks: int
) -> Span:
    """First starts of the ranks, and when they have reduced their gradients; lists are played in full."""
    found = Span(*(np.empty((len(message), n)) for n in (ranks, ranks, passes.forward.shape[1])))
    for count, times, rows in equal_lists(micro_batches, passes.times):
        of_rows = _play(schedule, passes.take(rows), message[rows], ranks, times, count)
        for every, some_of in zip(found, of_rows, strict=True):
            every[rows] = some_of
    return found


def equal_lists(
    micro_batches: NDArray[np.int64], times: Sequence[StageTimes] | None
) -> Iterator[tuple[int, StageTimes | None, NDArray[np.int64]]]:
    """Rows of plans of one shape that have the same lists, with what the lists depend on."""
    for count in np.unique(micro_batches):
        rows = np.flatnonzero(micro_batches == count)
        if times is None:
            yield int(count), None, rows
            continue
        same: dict[StageTimes, list[int]] = {}
        for row in rows.tolist():
            same.setdefault(times[row], []).append(row)
        yield from ((int(count), of, np.array(members)) for of, members in same.items())


def _busiest(schedule: ScheduleChoice, passes: Passes, ranks: int) -> Array:
    """Seconds of one micro-batch on the rank that has most to do; of several ways it goes only one."""
    whole = passes.whole
    at = stages_of_ranks(schedule, ranks, whole.shape[1] // ranks)
    return (whole[:, at].sum(1) + passes.of_share).max(1) / schedule.kind.chains


@lru_cache(maxsize=256)
def stages_of_ranks(schedule: ScheduleChoice, ranks: int, chunks: int) -> NDArray[np.int64]:
    """Return the stages of every rank by their places in a chain: (V, P)."""
    kind = schedule.kind
    placement, ways = np.array(kind.placement(ranks, chunks)), kind.ways(ranks, chunks)
    mine = (np.flatnonzero(placement == rank).tolist() for rank in range(ranks))
    return np.array([sorted(stages, key=ways.position) for stages in mine]).T


def periodic_micro_batches(micro_batches: Ints, period: int, rounds: int = ROUNDS) -> NDArray[np.int64]:
    """Return the number of micro-batches to play: all, or enough to reach the periodic regime."""
    few = np.asarray(micro_batches) <= (rounds + 1) * period
    return np.where(few, micro_batches, rounds * period + np.asarray(micro_batches) % period)


@dataclass(frozen=True, slots=True)
class _ListPlay:
    """A play of one plan's lists; equal ``inputs`` have equal ends."""

    inputs: tuple[Any, ...]
    play: Callable[[], Span] = field(compare=False)


@lru_cache(maxsize=4096)
def _play_once(of: _ListPlay) -> Span:
    return of.play()


def _play(
    schedule: ScheduleChoice,
    passes: Passes,
    message: Array,
    ranks: int,
    times: StageTimes | None,
    micro_batches: int,
) -> Span:
    """Play lists, those of few plans once for equal times: what is sharded, or on hosts, often changes no pass."""
    few, spans = len(message) <= FEW, []
    for at in np.split(np.arange(len(message)), range(1 if few else MANY, len(message), 1 if few else MANY)):
        play = partial(_play_anew, schedule, passes.take(at), message[at], ranks, times, micro_batches)
        if few:
            shape = schedule, ranks, times, micro_batches, passes.forward.shape[1], message[at].tobytes()
            spans.append(_play_once(_ListPlay((*shape, *passes.inputs(int(at[0]))), play)))
        else:
            spans.append(play())
    return Span(*(np.concatenate(of) for of in zip(*spans, strict=True)))


def _play_anew(
    schedule: ScheduleChoice,
    passes: Passes,
    message: Array,
    ranks: int,
    times: StageTimes | None,
    micro_batches: int,
) -> Span:
    """Play lists of one plan in floats, or of several in arrays."""
    chunks = passes.forward.shape[1] // ranks
    exchanged = passes.exchanges and passes.exchanges.places
    copied = passes.copies and passes.copies.copied
    order = play_order(schedule, ranks, micro_batches, chunks, times, exchanged, copied)
    of = passes.by_kind, {MESSAGE: message, **(passes.share.exchanges if passes.share else {})}
    if len(message) > 1:
        return Span(*(np.stack(times_of, 1) for times_of in order.span(_player(passes, *of, ranks, None))))
    return Span(*(np.array([times_of]) for times_of in order.span(_player(passes, *of, ranks, 0))))


def _player(
    passes: Passes, by_kind: Mapping[str, Array], waits: Mapping[str, Array], ranks: int, row: int | None
) -> Player:
    """Return a player with the streams that plans have: of the plan at ``row``, in floats, or of all plans."""
    message, exchanges, copies = waits[MESSAGE], None, None
    numbers = Numbers(np.zeros_like(message), np.maximum, np.minimum) if row is None else FLOATS

    def by_stage(seconds: Array) -> list[Any]:
        return list(seconds.T) if row is None else seconds[row].tolist()

    clocks = Clocks(ranks, numbers)
    if (exchanged := passes.exchanges) is not None:
        times = {"GATHER": by_stage(exchanged.gather), "REDUCE": by_stage(exchanged.reduce)}
        slowdown = exchanged.slowdown if row is None else exchanged.slowdown_of(row)
        rules = exchanged.overlapped, slowdown, exchanged.blocks
        exchanges = DataParallelStreams(clocks, times, *rules)
    if passes.copies is not None:
        copies = CopyStreams(clocks, by_stage(passes.copies.seconds))
    delays = waits if row is None else {name: float(seconds[row]) for name, seconds in waits.items()}
    return Player(clocks, {k: by_stage(seconds) for k, seconds in by_kind.items()}, delays, exchanges, copies)


class PlayOrder(NamedTuple):
    """All actions of a schedule, each after its list predecessor and its data.

    ``first`` is the place of every rank's first pass, ``last`` that of every stage's last one.
    """

    steps: tuple[Step, ...]
    first: tuple[int, ...]
    last: tuple[int, ...]

    def span(self, player: Player) -> tuple[list[Any], list[Any], list[Any]]:
        """Return first starts and last ends of the ranks, and last ends of the stages."""
        player.play(self.steps)
        starts, ends = player.clocks.starts, player.clocks.ends
        return [starts[at] for at in self.first], player.ends_of_ranks(), [ends[at] for at in self.last]


@lru_cache(maxsize=1024)
def play_order(
    schedule: ScheduleChoice,
    ranks: int,
    micro_batches: int,
    chunks: int,
    times: StageTimes | None = None,
    exchanged: ExchangePlaces | None = None,
    copied: OffloadedStages | None = None,
) -> PlayOrder:
    """Return the order of a schedule's passes, with exchanges of states and copies to the host if there are any."""
    lists = lists_with_offload_copies(schedule, ranks, micro_batches, chunks, times, copied)
    if exchanged is not None:
        stages = stages_of_ranks(schedule, ranks, chunks).T.tolist()
        shares = [[ranks * chunks + rank] if schedule.form else [] for rank in range(ranks)]
        size = None if not exchanged.by_unit else schedule.unit_size(ranks, micro_batches, chunks)
        lists = exchanged.within(
            lists, size, [share + mine for share, mine in zip(shares, stages, strict=True)]
        )
    if exchanged is None and copied is None:
        steps = execution_order(lists, schedule.ways(ranks, chunks))
    else:
        steps = order_with(play_order(schedule, ranks, micro_batches, chunks, times).steps, lists)
    passes = [(place, step) for place, step in enumerate(steps) if step.kind in PASS_KINDS]
    first = {step.rank: place for place, step in reversed(passes)}
    last = {step.stage: place for place, step in passes}
    return PlayOrder(
        tuple(steps),
        tuple(first[rank] for rank in range(ranks)),
        tuple(last[k] for k in range(ranks * chunks)),
    )
