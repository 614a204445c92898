"""The metrics of one optimizer step, all of them measured."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """Step ``step``, counted from 0. What is not known is None.

    ``loss`` is the mean over all tokens of the step that have a label, before its update, in nats; ``grad_norm`` that
    before clipping; ``tokens`` are all that the run has been trained on, this step's included; ``tokens_per_s`` is of
    all devices together; ``memory_bytes`` the most that an allocator has given to tensors so far, on the rank that has
    given most; ``time_s`` the seconds since 1970 at the end of the step.
    """

    step: int
    loss: float
    grad_norm: float | None
    lr: float
    tokens: int
    tokens_per_s: float
    mfu: float | None
    step_time_s: float
    memory_bytes: int | None
    time_s: float

    def to_json(self) -> dict[str, object]:
        """The metrics as JSON-ready data. JSON has no word for NaN and infinity: null, and named so beside."""
        return finite(asdict(self)) | {"origin": "measured"}


def finite(data: Mapping[str, object]) -> dict[str, object]:
    """``data`` with null for each number that is not finite, and under ``not_finite`` what it was."""
    lost = {
        key: str(value) for key, value in data.items() if isinstance(value, float) and not isfinite(value)
    }
    kept = {key: None if key in lost else value for key, value in data.items()}
    return {**kept, "not_finite": lost} if lost else kept
