"""A barrier of all ranks after a pass of the vocabulary."""


class Barrier:
    """Micro-batches are numbered in the order of their last forward passes; all ranks take them in that order."""

    def __init__(self, ranks: int) -> None:
        self.made = [0] * ranks
        self._ends: list[list[float]] = []

    def end(self, rank: int, time: float) -> float | None:
        """Record that a rank ends its pass of the next micro-batch; return ``passed`` of that micro-batch."""
        number = self.made[rank]
        if number == len(self._ends):
            self._ends.append([])
        self._ends[number].append(time)
        self.made[rank] += 1
        return self.passed(number)

    def passed(self, number: int) -> float | None:
        """Return the time at which the last rank ended its pass of a micro-batch; None if some rank has not."""
        there = number < len(self._ends) and len(self._ends[number]) == len(self.made)
        return max(self._ends[number]) if there else None
