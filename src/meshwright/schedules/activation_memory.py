"""The activation memory of a rank along its list, in the unit that compares schedules (``pipeline.py``).

The forward pass of a micro-batch over one rank's part of the model adds 2; a stage is ranks / (stages of one way) of
that: 2/V with V chunks, and 2 for each stage of a bidirectional schedule, whose ranks hold two parts. I takes away what
it does not leave for W (``kept``; a half if nothing is said), W that rest, B all. F holds from its start, the others
let go at their end. What it ignores: parameters, gradients, buffers of messages, and all actions but these.
"""

from collections.abc import Sequence
from itertools import accumulate

from meshwright.play.in_flight import OF_STAGES
from meshwright.schedules.action import Action
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.pipeline import PASS_MEMORY


def levels(actions: Sequence[Action], ranks: int, ways: StageChains, kept: float = 0.5) -> list[float]:
    """Return the memory of one rank after each of its actions. Sums are exact, divided at the end."""
    whole = PASS_MEMORY * ranks
    changes = [OF_STAGES.get(action.kind, (0, 0)) for action in actions]
    before_backward = accumulate(change for change, _ in changes)
    before_weight = accumulate(change for _, change in changes)
    counts = zip(before_backward, before_weight, strict=True)
    return [whole * (waiting + kept * left) / ways.length for waiting, left in counts]


def peaks(lists: Sequence[Sequence[Action]], ways: StageChains, kept: float = 0.5) -> tuple[float, ...]:
    """Return the peak memory of each rank."""
    return tuple(max(levels(actions, len(lists), ways, kept), default=0.0) for actions in lists)
