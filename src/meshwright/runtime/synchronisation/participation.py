"""The replicas whose gradients a step combines, and the weights of their sums."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Participation:
    """Weights of the replicas of a combined axis, in one step; none: all replicas count as they are.

    A replica of weight 0 is late, or a code does without it: neither its gradient nor its loss counts.
    """

    weights: tuple[float, ...] = ()

    def of(self, replicas: int) -> tuple[float, ...]:
        """Return the weights of a group of so many replicas."""
        return self.weights or (1.0,) * replicas

    def arrived(self, replicas: int) -> list[int]:
        """Return the replicas that count."""
        return [place for place, weight in enumerate(self.of(replicas)) if weight]

    def row_factor(self, replicas: int) -> float:
        """Return the number that turns a rule's result for summands into one for rows, whose mean is the gradient."""
        arrived = self.arrived(replicas)
        return len(arrived) * self.of(replicas)[arrived[0]]

    def take(self, weights: Sequence[float]) -> None:
        """Set the weights of the current step."""
        self.weights = tuple(weights)
