"""Times of the stages of a pipeline as an automatic schedule sees them: relative to each other, and rounded.

Only ratios matter to the order of actions. They are rounded to ``STEPS`` parts of the mean pass, so that plans that
differ by less than a planner can know share their lists, and so that the lists can be found again from either the
lowered plan or the closed forms.
"""

from collections.abc import Sequence
from dataclasses import dataclass

STEPS = 40
LIMIT = 1000


@dataclass(frozen=True, slots=True)
class ShareTimes:
    """The passes S and T of one micro-batch, for a rank's share of the vocabulary; all ranks have equal shares."""

    s: float
    t: float


@dataclass(frozen=True, slots=True)
class StageTimes:
    """F, I and W of every stage and a message between ranks, in any one unit.

    ``kept`` is the part of what F keeps that I leaves for W. Passes that are not split count as I. ``share``: where the
    vocabulary is spread over the ranks.
    """

    forward: tuple[float, ...]
    input: tuple[float, ...]
    weight: tuple[float, ...]
    message: float = 0.0
    kept: float = 0.5
    share: ShareTimes | None = None


def equal_times(stages: int) -> StageTimes:
    """F = I = W, no time for messages, and I frees half."""
    ones = (1.0,) * stages
    return StageTimes(ones, ones, ones)


SPREAD_STEPS = 10
"""Lists with a spread vocabulary take longer to make: coarser steps let more plans share them."""


def rounded_times(
    forward: Sequence[float],
    input_: Sequence[float],
    weight: Sequence[float],
    message: float,
    kept: float,
    share: ShareTimes | None = None,
) -> StageTimes:
    """Ratios of the times, in steps of the mean pass; no pass of more than ``LIMIT`` steps."""
    unit = (
        (sum(forward) + sum(input_) + sum(weight)) / (3 * len(forward)) / (SPREAD_STEPS if share else STEPS)
    )

    def steps(seconds: float) -> float:
        return float(min(LIMIT, round(seconds / unit))) if unit > 0 else 1.0

    return StageTimes(
        tuple(map(steps, forward)),
        tuple(map(steps, input_)),
        tuple(map(steps, weight)),
        steps(message),
        round(min(1.0, max(0.0, kept)) * STEPS) / STEPS,
        share and ShareTimes(steps(share.s), steps(share.t)),
    )
