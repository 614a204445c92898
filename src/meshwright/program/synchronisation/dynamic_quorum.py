"""Choose how many replicas a step waits for from measured arrivals: dynamic backup workers (arXiv 2004.14696). Pure.

With the k-th arrival after T(k) seconds, k is chosen to make gain(k)/E[T(k)] largest. For steps of size 1/L of a loss
that is L-smooth, the expected decrease with k gradients of variance V each is (‖∇F‖² − V/k)/2L (the paper's bound), so

    gain(k) = 1 − (V/‖∇F‖²)/k,

where V/‖∇F‖² is estimated by the caller, or ``NOISE`` without an estimate. E[T(k)] is the mean of the last ``WINDOW``
steps in which the k-th arrival was seen. Steps see no arrivals behind their quorum, so the first ``FIRST`` steps, and
later every ``EXPLORES``-th, wait for all.

Assumed: these numbers, and the step size; the paper estimates L from the losses too.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

WINDOW, FIRST, EXPLORES = 20, 4, 20
NOISE = 1.0


@dataclass
class DynamicQuorum:
    """The choice for ``replicas`` of which at least ``least`` must count; ``noise`` is V/‖∇F‖²."""

    replicas: int
    least: int = 1
    noise: float = NOISE
    steps: int = 0
    quorum: int = field(init=False)
    seen: list[deque[float]] = field(init=False)

    def __post_init__(self) -> None:
        self.quorum = self.replicas
        self.seen = [deque(maxlen=WINDOW) for _ in range(self.replicas)]

    def observe(self, seconds: Sequence[float]) -> None:
        """Take the arrival times of a step, and choose the quorum of the next one."""
        for times, arrival in zip(self.seen, sorted(seconds), strict=False):
            times.append(arrival)
        self.steps += 1
        explores = self.steps < FIRST or self.steps % EXPLORES == 0
        self.quorum = self.replicas if explores else self.best

    @property
    def best(self) -> int:
        """The number of replicas with the largest gain over expected time; all if no number has a gain."""
        rates = {k: self.gain(k) / self._expected(k) for k in range(self.least, self.replicas + 1)}
        found = max(rates, key=lambda k: (rates[k], k))
        return found if rates[found] > 0 else self.replicas

    def gain(self, replicas: int) -> float:
        """Return the expected decrease of the loss with so many gradients, relative to exact ones."""
        return 1 - self.noise / replicas

    def _expected(self, replicas: int) -> float:
        times = self.seen[replicas - 1]
        return sum(times) / len(times)
