"""Choose the global batch from a range: the batches worth searching on a cluster, and the best one of each cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_ranking import RankedCluster
from meshwright.economy.objectives import Objective
from meshwright.errors import InputError, Problem
from meshwright.search.space.legal_plans import MAX_MICRO_BATCH, divisors

OPTION = "batch-range"
EXAMPLE = "--batch-range 448..576"
STATES = ("searched", "beaten", "nothing fits", "nothing is legal")
"""The states of a cluster, the one that tells most first."""


@dataclass(frozen=True, slots=True)
class BatchRange:
    """Global batches from ``low`` to ``high``, both included."""

    low: int
    high: int

    def remark(self, batch: int) -> str:
        """Name the batch that was chosen."""
        return f"global batch {batch} has the best plan of {self.low}..{self.high}, per token"

    def candidates(self, devices: int) -> tuple[int, ...]:
        """Return the batches that can be best on so many devices, the largest first.

        A plan that stays as it is takes the less time per sequence the more micro-batches a step has, because filling
        and draining the pipeline, gradient exchange and optimizer come once a step. So of each number of sequences that
        plans can have at once, dp·micro_batch, times pp or 2·pp where a schedule needs whole rounds, only the largest
        multiple in the range can be best. All of these numbers are a divisor of the devices times a micro-batch or two.
        """
        sizes = range(1, 2 * MAX_MICRO_BATCH + 1)
        multiples = {self.high - self.high % (part * size) for part in divisors(devices) for size in sizes}
        return tuple(sorted((batch for batch in multiples if batch >= self.low), reverse=True))


def parse_batch_range(text: str) -> BatchRange:
    """Return the range of ``LOW..HIGH``. Raise InputError."""
    low, dots, high = text.partition("..")
    if not (dots and low.isdecimal() and high.isdecimal()):
        raise InputError(Problem(OPTION, text, "must be two whole numbers, LOW..HIGH", EXAMPLE))
    found = BatchRange(int(low), int(high))
    if found.low < 1:
        raise InputError(Problem(OPTION, text, "must begin at 1 or more", f"--batch-range 1..{high}"))
    if found.low > found.high:
        rule = f"is empty: {low} is above {high}"
        raise InputError(Problem(OPTION, text, rule, f"--batch-range {high}..{low}"))
    return found


def batch_or_range(global_batch: int | None, batch_range: str | None) -> BatchRange | None:
    """Return the range, or None where a question fixes its global batch. Raise InputError if it says none, or both."""
    if batch_range is None:
        if global_batch is None:
            rule = "is needed: sequences per step, or a range to choose from"
            raise InputError(Problem("global-batch", None, rule, f"--global-batch 512 or {EXAMPLE}"))
        return None
    if global_batch is not None:
        rule = "stands beside --global-batch, which fixes the batch"
        raise InputError(Problem(OPTION, batch_range, rule, "one of the two"))
    return parse_batch_range(batch_range)


def best_batches(found: Sequence[RankedCluster], aim: Objective, limits: Limits) -> list[int]:
    """Return the place of the best batch of each cluster: one that keeps the limits before others, by the objective."""

    def order(place: int) -> tuple[int, bool, float]:
        one = found[place]
        value = None if one.step_s is None else aim.measure(one.course, one.step_s)
        return STATES.index(one.state), not one.holds(limits), inf if value is None else value

    places: dict[str, int] = {}
    for place, one in enumerate(found):
        if one.offer.on not in places or order(place) < order(places[one.offer.on]):
            places[one.offer.on] = place
    return list(places.values())
