"""Find spikes of the loss: a step's loss far above the median of the steps before. Pure.

The spread of the last losses is their median absolute deviation, which a few large ones do not move. A loss is a spike
if it is above the median by both ``DEVIATIONS`` of it and ``EXCESS`` of the median: the first alone would find a spike
in the noise of a loss that has converged, the second alone in that of a tiny loss.
"""

from collections import deque
from dataclasses import dataclass, field
from math import isfinite
from statistics import median

from meshwright.runtime.faults.fault import Fault

KEPT = 50
"""Steps whose losses are the usual ones."""
LEAST = 3
"""Losses that are needed for a first judgement."""
FEW = 10
"""Fewer losses than this have no reliable spread: the excess must be ``EARLY_EXCESS`` of the median."""
DEVIATIONS = 15.0
"""Of the spread (normal: 1 standard deviation). Losses of mini-batches have heavier tails than a normal distribution;
in 10,000 healthy steps 15 is not reached."""
EXCESS, EARLY_EXCESS = 0.5, 2.0
"""Of the median. Published spikes of large runs are a multiple of the loss; 0.5 also finds those that begin."""
TO_DEVIATION = 1.4826
"""Standard deviations of a normal distribution per median absolute deviation."""


@dataclass
class LossHistory:
    """The last losses of a run. A spike of several steps is found once, at its first."""

    losses: "deque[float]" = field(default_factory=lambda: deque(maxlen=KEPT))
    in_spike: bool = False

    def add(self, step: int, loss: float) -> Fault | None:
        """Add a step's loss and return a fault if a spike begins with it."""
        if not isfinite(loss):
            return None
        found = self._spike(step, loss)
        begins = found is not None and not self.in_spike
        self.in_spike = found is not None
        self.losses.append(loss)
        return found if begins else None

    def _spike(self, step: int, loss: float) -> Fault | None:
        count = len(self.losses)
        if count < LEAST:
            return None
        usual = median(self.losses)
        if loss - usual <= (EXCESS if count >= FEW else EARLY_EXCESS) * abs(usual):
            return None
        spread = TO_DEVIATION * median(abs(one - usual) for one in self.losses)
        if loss - usual <= DEVIATIONS * spread:
            return None
        text = f"the loss is {loss:.4g}, the median of the {count} steps before {usual:.4g}"
        return Fault(kind="spike", rank=None, step=step, evidence=f"{text} and their spread {spread:.2g}")
