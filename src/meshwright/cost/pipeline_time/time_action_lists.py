"""Exact times of any schedule's action lists, simulated on arrays of stage times.

The order in which actions can run does not depend on durations, so ``schedules/execution_order.py`` finds it once
per (schedule, P, M, V) and then each action is one maximum and one sum over all plans at once. Beyond ``ROUNDS``
rounds of P micro-batches, or of a unit that the plan names, the schedule is in its periodic regime (a max-plus
linear system; Baccelli et al. 1992, theorem 3.28) and the makespan grows by a constant for every further round: it
is extrapolated from the last two, and by no less than the work of the busiest rank, which a pipeline with one slow
stage comes to only after many rounds. Automatic schedules
have lists of their own for every distinct (rounded) set of stage times.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.pipeline_time.offload_copy_streams import (
    CopyStreams,
    OffloadCopies,
    lists_with_offload_copies,
    with_copies,
)
from meshwright.cost.pipeline_time.per_step_exchange_streams import StateExchanges, StateStream
from meshwright.cost.pipeline_time.per_unit_exchange_streams import (
    EXCHANGES,
    UnitExchangeStreams,
    UnitExchangeTimes,
    unit_lists,
    with_exchanges,
)
from meshwright.program.layouts.rank_mesh import Ints
from meshwright.schedules.action import SUMS, Kind
from meshwright.schedules.activation_offload import COPIES, OffloadedStages
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.execution_order import Step, execution_order
from meshwright.schedules.stage_times import StageTimes

Array = NDArray[np.float64]
MESSAGE = "message"
"""What brings a pass its input from another rank, where all ranks do not exchange something."""
ROUNDS = 3
FEW = 4
"""So many plans are played one by one."""
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
    exchanges: UnitExchangeTimes | None = None
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
    schedule: ScheduleChoice,
    passes: Passes,
    message: Array,
    micro_batches: NDArray[np.int64],
    ranks: int,
    states: StateExchanges,
) -> Span:
    """First starts of the ranks, and when they have reduced their gradients; lists are played in full."""
    found = Span(*(np.empty((len(message), n)) for n in (ranks, ranks, passes.forward.shape[1])))
    for count, times, rows in equal_lists(micro_batches, passes.times):
        some = passes.take(rows)
        of_rows = _play(schedule, some, message[rows], ranks, times, count, (states, rows))
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


def _play(
    schedule: ScheduleChoice,
    passes: Passes,
    message: Array,
    ranks: int,
    times: StageTimes | None,
    micro_batches: int,
    states: tuple[StateExchanges, NDArray[np.int64]] | None = None,
) -> Span:
    exchanges = passes.exchanges
    overlapped = None if exchanges is None else exchanges.overlapped
    copied = passes.copies and passes.copies.copied
    chunks = passes.forward.shape[1] // ranks
    steps = action_order(schedule, ranks, micro_batches, chunks, times, overlapped, copied)
    by_kind = passes.by_kind
    if exchanges is not None:
        by_kind |= {"GATHER": exchanges.gather, "REDUCE": exchanges.reduce}
    if passes.copies is not None:
        by_kind |= dict.fromkeys(COPIES, passes.copies.seconds)
    waits = {MESSAGE: message, **(passes.share.exchanges if passes.share else {})}
    if len(message) > FEW:
        columns = {kind: list(seconds.T) for kind, seconds in by_kind.items()}
        zero = np.zeros_like(message)
        streams = exchanges and exchanges.streams(ranks, zero, np.maximum, np.minimum)
        stream = states and StateStream(states[0].columns(states[1]), steps, zero)
        host = passes.copies and CopyStreams(ranks, zero, np.maximum)
        times_of = _walk(steps, columns, waits, ranks, zero, np.maximum, streams, stream, host)
        return Span(*(np.stack(of, 1) for of in times_of))
    rows = [
        _walk(
            steps,
            {kind: seconds[row].tolist() for kind, seconds in by_kind.items()},
            {name: float(seconds[row]) for name, seconds in waits.items()},
            ranks,
            0.0,
            max,
            exchanges and exchanges.streams(ranks, 0.0, max, min),
            states and StateStream(states[0].row(int(states[1][row])), steps, 0.0),
            passes.copies and CopyStreams(ranks, 0.0, max),
        )
        for row in range(len(message))
    ]
    return Span(*(np.array(of) for of in zip(*rows, strict=True)))


def _walk(
    steps: Sequence[Step],
    seconds: Mapping[str, Sequence[Any]],
    waits: Mapping[str, Any],
    ranks: int,
    zero: Any,
    larger: Callable[[Any, Any], Any],
    streams: UnitExchangeStreams | None = None,
    stream: StateStream | None = None,
    host: CopyStreams | None = None,
) -> tuple[list[Any], list[Any], list[Any]]:
    """First starts and last ends of the ranks, last ends of the stages; with ``streams`` there are exchanges too, with
    ``host`` copies.

    Times are arrays over plans, or floats, which are faster for few. A sum over all ranks is there at one time for all
    who wait for it.
    """
    clock = [stream.start(rank) if stream else zero for rank in range(ranks)]
    stage_end = [zero] * len(seconds["F"])
    begin: list[Any] = [None] * ranks
    ends: list[Any] = []
    sums: dict[tuple[str, int], Any] = {}
    for index, step in enumerate(steps):
        stage, rank, kind, needed, exchange, reload = step
        start = clock[rank]
        if host is not None:
            if kind in COPIES:
                ends.append(host.copy(kind, rank, start, seconds[kind][stage]))
                continue
            start = host.before_pass(rank, start if reload is None else larger(start, ends[reload]))
        if exchange in SUMS:
            meeting = exchange, needed[0][0]
            if meeting not in sums:
                sums[meeting] = reduce(larger, (ends[source] for source, _ in needed)) + waits[exchange]
            start = larger(start, sums[meeting])
        else:
            wait = waits[exchange or MESSAGE]
            for source, crosses in needed:
                start = larger(start, ends[source] + wait if crosses else ends[source])
        took = seconds[kind][stage]
        if streams is not None:
            if kind in EXCHANGES:
                ends.append(streams.exchange(kind, rank, took, clock))
                continue
            took = streams.slowed(rank, start, took)
        if begin[rank] is None:
            begin[rank] = start
        if stream is not None:
            took = stream.duration(step, start, took)
            took = took + stream.slowdown(index, step, start, took)
        clock[rank] = start + took
        if stage < len(stage_end):
            stage_end[stage] = clock[rank]
        ends.append(clock[rank])
    if stream is not None:
        return begin, [stream.end(rank, at) for rank, at in enumerate(clock)], stage_end
    return begin, clock if streams is None else list(map(larger, clock, streams.free)), stage_end


@lru_cache(maxsize=1024)
def action_order(
    schedule: ScheduleChoice,
    ranks: int,
    micro_batches: int,
    chunks: int,
    times: StageTimes | None = None,
    overlapped: frozenset[Kind] | None = None,
    copied: OffloadedStages | None = None,
) -> tuple[Step, ...]:
    """All actions of a schedule, each after its list predecessor and its data.

    ``overlapped``: kinds of per-unit exchanges that overlap compute; None: no exchanges. ``copied``: with copies to
    the host.
    """
    lists = schedule.lists(ranks, micro_batches, chunks, times)
    steps = execution_order(lists, schedule.ways(ranks, chunks))
    if overlapped is not None:
        exchanged = unit_lists(schedule, ranks, micro_batches, chunks, times, overlapped)
        steps = list(with_exchanges(steps, exchanged))
    if copied is not None:
        steps = list(
            with_copies(
                steps, lists_with_offload_copies(schedule, ranks, micro_batches, chunks, times, copied)
            )
        )
    return tuple(steps)
