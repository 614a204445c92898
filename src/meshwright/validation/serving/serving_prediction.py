"""A prediction of a serving run, and the form of a predictor.

A predictor reads ``ServingInputs`` alone. For a run that it cannot predict it returns the reason.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshwright.cost.serving.levels import Level
from meshwright.validation.serving.serving_row import ServingInputs


@dataclass(frozen=True, slots=True)
class Interval:
    """A predicted value with the ends of its 80 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPrediction:
    """Mean seconds to the first token and per further token, and output tokens per second of a device.

    None: the run has no such value, as the time to the first token above capacity, or the time per further token of
    one output token. ``level``: the one that was applied.
    """

    ttft_s: Interval | None
    tpot_s: Interval | None
    output_tokens_per_s_per_device: Interval | None
    level: Level | None = None


Outcome = ServingPrediction | str
"""A prediction, or the reason why a run has none."""
Predictor = Callable[[Sequence[ServingInputs]], Sequence[Outcome]]
