"""Choose how many replicas a step waits for from measured arrivals: dynamic backup workers (arXiv 2004.14696). Pure.

With the k-th arrival after T(k) seconds, k is chosen to make gain(k)/E[T(k)] largest. For steps of size η of a loss
that is L-smooth, with k gradients of variance V each, the expected decrease is at least (η − L·η²/2)·‖∇F‖² −
L·η²·V/2k (the paper's bound), so relative to exact gradients

    gain(k) = 1 − noise/k with noise = L·η/(2 − L·η) · V/‖∇F‖².

The caller sets ``noise`` if it can estimate it; else it is ``NOISE``: η = 1/L, and a variance as large as the squared
gradient. E[T(k)] is the mean of the last ``WINDOW`` steps in which the k-th arrival was seen. Steps see no arrivals
behind their quorum. So the first ``FIRST`` steps wait for all, and later every ``EXPLORES``-th for twice as many as are
best.

Assumed: all these numbers; the paper estimates L from the losses, and sees late arrivals.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

WINDOW, FIRST, EXPLORES, EXPLORING = 20, 4, 20, 2
NOISE = 1.0


@dataclass
class DynamicQuorum:
    """The choice for ``replicas`` of which at least ``least`` must count."""

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
        self.quorum = self.replicas
        if self.steps >= FIRST:
            factor = EXPLORING if self.steps % EXPLORES == 0 else 1
            self.quorum = min(self.replicas, factor * self.best)

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
