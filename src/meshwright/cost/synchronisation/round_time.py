"""Play a round of steps, in which all periods of a plan's entries end together.

Steps take S seconds each. Exchanges run on a stream of their own, one after the other, while later steps compute;
where one is due and has not ended, the step behind waits. What codecs, anchors and outer optimizers compute stands
between the steps. For an entry of one fragment with delay d and exchanges of X seconds every H steps

    round = H·S + max(0, X − d·S).

Fragments that take turns every g = H/count steps, with c seconds of compute for each, take count·T, where

    T = g·S + c + max(0, X − d·S) for d < g, and max(g·S + c, X) else:

more than one may be in flight, and the stream is the limit (``uniform_round_seconds``). ``play_rounds`` chains the
distinct steps of a round for any entries.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from meshwright.plans.synchronisation.periods import DueExchange, Periods

MOST_ROUNDS = 16
"""Rounds that are played until one takes as long as the one before; a stream with too much to do fills slowly."""
SAME = 1e-9


@dataclass(frozen=True)
class EntryTimes:
    """An entry with the seconds of each fragment: its exchange, its codec, and the update that applies it."""

    number: int
    periods: Periods
    exchange_s: tuple[float, ...]
    codec_s: tuple[float, ...]
    update_s: tuple[float, ...]

    def compute_s(self, fragment: int) -> float:
        """Return the seconds between steps of one exchange."""
        return self.codec_s[fragment] + self.update_s[fragment]


@dataclass
class RoundTime:
    """Seconds of some steps with their exchanges; ``exposed_s``, ``codec_s`` and ``update_s`` are by entry.

    ``begun`` counts exchanges of fragments; ``queued`` those that waited for another one's end. ``rounds_before`` are
    those played before it until one took as long as the next.
    """

    steps: int
    seconds: float = 0.0
    queued: int = 0
    rounds_before: int = 0
    exposed_s: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    codec_s: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    update_s: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    begun: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def step_s(self) -> float:
        """The mean seconds of a step."""
        return self.seconds / self.steps

    @property
    def kept_s(self) -> float:
        """The seconds that exchanges add to the steps."""
        return sum(map(sum, (of.values() for of in (self.exposed_s, self.codec_s, self.update_s))))

    def per_step(self, values: Mapping[int, float], number: int) -> float:
        """Return the mean of an entry's values over the steps."""
        return values.get(number, 0.0) / self.steps


@dataclass
class _DueEntry:
    """The fragments of one entry that begin and that end behind a step."""

    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)


Table = list[tuple[int, list[tuple[int, _DueEntry]]]]
"""Steps behind which something is due, in order, with the places of their entries."""


def play_rounds(step_s: float, entries: Sequence[EntryTimes], steps: int, *, whole_run: bool) -> RoundTime:
    """Play steps with their exchanges: a whole run from its first step, or a round in its steady state.

    ``entries`` are in the order in which they act.
    """
    stream = _Stream(step_s, entries)
    if whole_run:
        return stream.play(_due_table(entries, steps, wraps=False), steps)
    table = _due_table(entries, steps, wraps=True)
    found = stream.play(table, steps)
    for number in range(MOST_ROUNDS):
        before, found = found, stream.play(table, steps)
        found.rounds_before = number
        if abs(found.seconds - before.seconds) <= SAME * found.seconds and found.queued == before.queued:
            break
    return _limited_by_stream(found, entries)


def round_seconds(step_s: float, steps: int, delay: int, exchange_s: float) -> float:
    """Return the seconds of a round of one entry of one fragment, in closed form."""
    return uniform_round_seconds(step_s, steps, 1, delay, exchange_s)


def uniform_round_seconds(
    step_s: float, steps: int, count: int, delay: int, exchange_s: float, compute_s: float = 0.0
) -> float:
    """Return the seconds of a round of equal fragments that take turns, in closed form; ``count`` divides steps."""
    turn = steps // count * step_s + compute_s
    if delay < steps // count:
        return count * (turn + max(0.0, exchange_s - delay * step_s))
    return count * max(turn, exchange_s)


class _Stream:
    """The clocks of compute and of the stream of exchanges, from round to round."""

    def __init__(self, step_s: float, entries: Sequence[EntryTimes]) -> None:
        self.step_s, self.entries = step_s, entries
        self.now, self.free, self.steps = 0.0, 0.0, 0
        self.pending: dict[tuple[int, int], deque[tuple[int, float]]] = defaultdict(deque)

    def play(self, table: Table, steps: int) -> RoundTime:
        """Play steps from where the clocks are."""
        found, began, done = RoundTime(steps), self.now, 0
        for step, due in table:
            self.now += (step - done) * self.step_s
            done = step
            for place, of in due:
                self._entry(self.entries[place], of, self.steps + step, found)
        self.now += (steps - done) * self.step_s
        self.steps += steps
        found.seconds = self.now - began
        return found

    def _entry(self, entry: EntryTimes, due: _DueEntry, step: int, found: RoundTime) -> None:
        number, delay = entry.number, int(entry.periods.entry.delay)
        for fragment in due.begins:
            self.now += entry.compute_s(fragment)
            found.codec_s[number] += entry.codec_s[fragment]
            found.update_s[number] += entry.update_s[fragment]
            found.queued += self.free > self.now
            self.free = max(self.now, self.free) + entry.exchange_s[fragment]
            self.pending[number, fragment].append((step + delay, self.free))
            found.begun[number] += 1
        for fragment in due.ends:
            waiting = self.pending[number, fragment]
            if waiting and waiting[0][0] <= step:
                late = max(0.0, waiting.popleft()[1] - self.now)
                self.now += late
                found.exposed_s[number] += late


def _due_table(entries: Sequence[EntryTimes], steps: int, *, wraps: bool) -> Table:
    """Return what is due behind each step; of a round that repeats, exchanges that end in the next one come first."""
    found: dict[int, dict[int, _DueEntry]] = defaultdict(lambda: defaultdict(_DueEntry))
    for place, entry in enumerate(entries):
        for one in _exchanges(entry.periods, steps, wraps=wraps):
            found[one.begin][place].begins.append(one.fragment)
            end = (one.end - 1) % steps + 1 if wraps else one.end
            if end <= steps:
                found[end][place].ends.append(one.fragment)
    return [(step, sorted(found[step].items(), key=lambda item: item[0])) for step in sorted(found)]


def _exchanges(periods: Periods, steps: int, *, wraps: bool) -> Iterator[DueExchange]:
    """Yield the exchanges of an entry that begin within some steps, a fragment at a time."""
    if not wraps:
        yield from periods.exchanges(steps)
        return
    period, delay = periods.entry.period, int(periods.entry.delay)
    for fragment in range(periods.count):
        for begin in range(periods.offset(fragment) or period, steps + 1, period):
            yield DueExchange(begin, begin + delay, fragment)


def _limited_by_stream(found: RoundTime, entries: Sequence[EntryTimes]) -> RoundTime:
    """Return a round that takes no less than its exchanges do one after the other; the wait is shared by them."""
    busy = {one.number: found.begun[one.number] * sum(one.exchange_s) / one.periods.count for one in entries}
    late = sum(busy.values()) - found.seconds
    if late > 0:
        for number, seconds in busy.items():
            found.exposed_s[number] += late * seconds / sum(busy.values())
        found.seconds += late
    return found
