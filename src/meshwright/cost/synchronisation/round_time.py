"""Play a round of steps, in which all periods of a plan's entries end together.

Steps take S seconds each. Exchanges run on a stream of their own, one after the other, while later steps compute;
where one is due and has not ended, the step behind waits. What codecs, anchors and outer optimizers compute stands
between the steps. For one entry of one fragment with delay d and X seconds of an exchange every H steps

    round = H·S + max(0, X − d·S).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meshwright.plans.synchronisation.periods import Periods

WARM_UP_ROUNDS = 2
"""Rounds that are played before the one that counts."""


@dataclass(frozen=True)
class EntryTimes:
    """An entry with the seconds of each fragment: of its exchange, and of what is computed for it at begin and end."""

    number: int
    periods: Periods
    exchange_s: tuple[float, ...]
    compute_s: tuple[float, ...]


@dataclass
class RoundTime:
    """Seconds of some steps with their exchanges; ``exposed_s`` and ``codec_s`` are by entry, ``begun`` counts."""

    steps: int
    seconds: float = 0.0
    exposed_s: dict[int, float] = field(default_factory=dict)
    codec_s: dict[int, float] = field(default_factory=dict)
    begun: dict[int, int] = field(default_factory=dict)


def play_rounds(step_s: float, entries: Sequence[EntryTimes], steps: int, *, whole_run: bool) -> RoundTime:
    """Play steps with their exchanges: a whole run from its first step, or a round in its steady state.

    ``entries`` are in the order in which they act.
    """
    now, free = 0.0, 0.0
    pending: dict[tuple[int, int], list[float]] = {}
    rounds = 1 if whole_run else WARM_UP_ROUNDS + 1
    found, began = RoundTime(steps), 0.0
    for step in range(1, rounds * steps + 1):
        if step == (rounds - 1) * steps + 1:
            found, began = RoundTime(steps), now
        now += step_s
        for entry in entries:
            for fragment in range(entry.periods.count):
                if entry.periods.begins(step, fragment):
                    now += entry.compute_s[fragment]
                    _add(found.codec_s, entry.number, entry.compute_s[fragment])
                    free = max(now, free) + entry.exchange_s[fragment]
                    pending.setdefault((entry.number, fragment), []).append(free)
                    found.begun[entry.number] = found.begun.get(entry.number, 0) + 1
            for fragment in range(entry.periods.count):
                waiting = pending.get((entry.number, fragment), [])
                if entry.periods.ends(step, fragment) and waiting:
                    late = max(0.0, waiting.pop(0) - now)
                    now += late
                    _add(found.exposed_s, entry.number, late)
    found.seconds = now - began
    return found


def round_seconds(step_s: float, steps: int, delay: int, exchange_s: float) -> float:
    """Return the seconds of a round of one entry of one fragment, in closed form."""
    return steps * step_s + max(0.0, exchange_s - delay * step_s)


def _add(found: dict[int, float], number: int, seconds: float) -> None:
    found[number] = found.get(number, 0.0) + seconds


def step_of(found: RoundTime) -> float:
    """Return the mean seconds of a step."""
    return found.seconds / found.steps


def per_step(values: Mapping[int, float], number: int, found: RoundTime) -> float:
    """Return the mean of an entry's seconds over the steps."""
    return values.get(number, 0.0) / found.steps
