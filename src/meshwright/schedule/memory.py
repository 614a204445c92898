"""What a rank holds while it works through its list, in the unit that schedules are compared in (``pipeline.py``).

The forward pass of a micro-batch over one rank's part of the model adds 2; a stage is ranks / (stages of one way) of
that: 2/V with V chunks, and 2 for each stage of a bidirectional schedule, whose ranks hold two parts. I takes away what
it does not leave for W (``kept``; a half if nothing is said), W that rest, B all. F holds from its start, the others
let go at their end. What it ignores: parameters, gradients, buffers of messages, and all actions but these.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from meshwright.schedule.action import Action, Kind
from meshwright.schedule.dependencies import Ways
from meshwright.schedule.pipeline import PASS_MEMORY

CHANGES: Mapping[Kind, tuple[int, int]] = {"F": (1, 0), "B": (-1, 0), "I": (-1, 1), "W": (0, -1)}
"""What a pass changes: forward passes that wait for B or I, and those that wait for W."""


def levels(actions: Sequence[Action], ranks: int, ways: Ways, kept: float = 0.5) -> list[float]:
    """What one rank holds after each of its actions. Counted whole and divided once, so that nothing adds up wrong."""
    whole = PASS_MEMORY * ranks
    changes = [CHANGES.get(action.kind, (0, 0)) for action in actions]
    before_backward = accumulate(change for change, _ in changes)
    before_weight = accumulate(change for _, change in changes)
    counts = zip(before_backward, before_weight, strict=True)
    return [whole * (waiting + kept * left) / ways.length for waiting, left in counts]


def peaks(lists: Sequence[Sequence[Action]], ways: Ways, kept: float = 0.5) -> tuple[float, ...]:
    """The most that each rank holds."""
    return tuple(max(levels(actions, len(lists), ways, kept), default=0.0) for actions in lists)
