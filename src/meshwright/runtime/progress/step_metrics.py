"""The measured metrics of one optimizer step."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """Metrics of step ``step``, counted from 0. Unknown ones are None.

    ``loss`` is the mean over all labelled tokens of the step, before its update, in nats; where replicas synchronise
    less often, over those of the first island, and ``loss_islands`` has the loss of each island at an exchange.
    ``grad_norm`` is the norm before clipping; ``tokens`` all that the run has been trained on, including this step;
    ``tokens_per_s`` the rate of all devices together; ``memory_bytes`` the peak of allocated tensors so far, on the
    rank with the largest peak; ``time_s`` the seconds since 1970 at the end of the step; ``waited_s`` the seconds of
    the step in which rank 0 waited for other ranks. ``sequences_not_seen`` are those of late replicas, whose gradients
    and losses do not count.
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
    loss_islands: tuple[float, ...] | None = None
    waited_s: float | None = None
    sequences_not_seen: int | None = None

    def to_json(self) -> dict[str, object]:
        """Return the metrics as JSON-ready data; numbers that are not finite become null, with their names listed."""
        data = asdict(self)
        for name in ("loss_islands", "waited_s", "sequences_not_seen"):
            if data[name] is None:
                del data[name]
        return finite(data) | {"origin": "measured"}


def finite(data: Mapping[str, object]) -> dict[str, object]:
    """Return ``data`` with null for each number that is not finite, and its text under ``not_finite``."""
    lost = {
        key: str(value) for key, value in data.items() if isinstance(value, float) and not isfinite(value)
    }
    kept = {key: None if key in lost else value for key, value in data.items()}
    return {**kept, "not_finite": lost} if lost else kept
