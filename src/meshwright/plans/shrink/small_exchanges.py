"""Shrink the entries of ``synchronise``: periods, delays and fragments become small, what they do to each other stays.

All plans that are compared share one map of periods (``PeriodMap``): equal ones stay equal, the order stays, multiples
of the next shorter one stay multiples of it, 1 stays 1 and nothing else becomes 1. A delay of a whole period stays one;
shorter delays stay above 0, below the period, and in their order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import lcm

from meshwright.plans.synchronisation.compression import Budget, Compression
from meshwright.plans.synchronisation.periods import LearningRates, Periods, quadratic_rounds
from meshwright.plans.synchronisation.synchronisation import PeriodRule, Synchronisation

FEWEST = 2
"""Exchanges of every entry in a proof, and the shortest small period above 1."""
EXACT_STEPS = 3
"""Steps of a proof without exchanges between steps."""
MOST_STEPS = 64
MOST_FRAGMENTS = 2
MOST_BUCKET, MOST_RANK = 64, 2
"""Numbers of codecs above these would leave small tensors in one bucket, or as they are."""
HIGHEST_RATE, LEAST_SHARE = 0.01, 0.5
"""The learning rate that rules see in the first step, or more: a part of the largest alpha; it falls to 0 in a line."""


@dataclass(frozen=True)
class PeriodMap:
    """Small periods by the periods of all plans, and small delays by period and delay."""

    periods: dict[int, int]
    delays: dict[tuple[int, int], int]

    @classmethod
    def of(cls, entries: Iterable[Synchronisation]) -> "PeriodMap":
        """Return the map for the entries of all plans that are compared."""
        delays: dict[int, set[int]] = {}
        for entry in entries:
            delays.setdefault(entry.period, set()).add(int(entry.delay))
        small: dict[int, int] = {}
        shorter, of_shorter = 1, 1
        for period in sorted(delays):
            inner = sorted(delay for delay in delays[period] if 0 < delay < period)
            least = max(of_shorter + 1, FEWEST, len(inner) + 1)
            if of_shorter > 1 and period % shorter == 0:
                least += -least % of_shorter
            small[period] = least if period > 1 else 1
            shorter, of_shorter = period, small[period]
        return cls(
            small,
            {
                (period, delay): small[period] if delay == period else place
                for period, of in delays.items()
                for place, delay in enumerate(sorted({0, *of}))
            },
        )

    def small(self, entry: Synchronisation, layers: int, *, codecs: bool = True) -> Synchronisation:
        """Return an entry for a model of so many layers; ``codecs``: their numbers shrink too."""
        period = self.periods[entry.period]
        every: object = period
        if isinstance(entry.every, PeriodRule):
            rule = entry.rule.model_copy(update={"base": period})
            every = entry.every.model_copy(update={"qsr": rule})
        changes: dict[str, object] = {
            "every": every,
            "delay": self.delays[entry.period, int(entry.delay)],
        }
        if entry.fragment_rule.count > MOST_FRAGMENTS:
            changes["fragments"] = entry.fragment_rule.model_copy(update={"count": MOST_FRAGMENTS})
        if entry.compress is not None:
            changes["compress"] = _small_codec(entry.compress, layers, codecs=codecs)
        return entry.model_copy(update=changes)


def _small_codec(codec: Compression, layers: int, *, codecs: bool) -> Compression:
    changes: dict[str, object] = {}
    encoded = codec.layer_range
    if encoded is not None:
        first = min(encoded.start, 1)
        changes["layers"] = f"{first}..{max(first, layers - 1)}"
    if codecs and codec.bucket is not None:
        changes["bucket"] = min(codec.bucket, MOST_BUCKET)
    if codecs and isinstance(codec.low_rank, Budget):
        changes["low_rank"] = Budget(budget=min(codec.low_rank.budget, MOST_RANK))
    elif codecs and isinstance(codec.low_rank, int | float):
        changes["low_rank"] = min(codec.low_rank, MOST_RANK)
    return codec.model_copy(update=changes)


def present_entries(entries: Iterable[Synchronisation], degrees: dict[str, int]) -> list[Synchronisation]:
    """Return the entries whose axes a small plan has; an outer optimizer needs no partners."""
    return [entry for entry in entries if degrees[entry.axis] > 1 or entry.outer_in_full is not None]


def rates_of(entries: Iterable[Synchronisation], steps: int) -> LearningRates:
    """Return the learning rates that rules see in a proof: rounds become longer, and are several."""
    alphas = [float(entry.rule.alpha) for entry in entries if entry.has_rule]
    highest = max([HIGHEST_RATE, *(LEAST_SHARE * alpha for alpha in alphas)])
    return LearningRates(lambda step: highest * (1 - (step - 1) / steps), steps)


def steps_of(entries: Sequence[Synchronisation]) -> int:
    """Return the steps of a proof: whole rounds, in which every entry is exchanged twice at least."""
    if all(entry.period == 1 and not entry.has_rule for entry in entries):
        return EXACT_STEPS
    together = lcm(*(entry.period for entry in entries))
    longest = max(entry.period for entry in entries)
    least = together * -(-FEWEST * longest // together)
    tried = range(least, MOST_STEPS + 1, together)
    return next(
        (
            steps
            for steps in tried
            if all(_whole(entry, rates_of(entries, steps)) for entry in entries if entry.has_rule)
        ),
        least,
    )


def _whole(entry: Synchronisation, rates: LearningRates) -> bool:
    """Return true if a rule's last round ends with the run, and there are two at least."""
    rounds = list(quadratic_rounds(entry, rates))
    due = sum(1 for one in Periods(entry, rates).exchanges(rates.steps) if one.fragment == 0)
    return sum(length for _, length in rounds) == rates.steps and due >= FEWEST
