"""Delay backward passes by more forward passes, to make room for the vocabulary's barriers.

Between the last forward pass of a micro-batch and its first backward pass every rank now has work to do and results to
exchange. So that nobody waits for them, every place of a forward pass in a rank's list is given to the forward pass
of ``delay`` micro-batches later, and the first ones come before all else: what had n forward passes of V stages before
it then has n + delay·V (Yeung et al., arXiv 2411.05288, section 5, lengthen the life of each micro-batch by so many
periods). A rank holds at most delay·V passes of a stage more.
"""

from collections.abc import Sequence
from itertools import islice

from meshwright.schedules.action import Action, ActionLists


def delayed(lists: ActionLists, passes: int) -> list[list[Action]]:
    """Delay all passes but the forward ones by ``passes`` further forward passes."""
    return [_delayed(actions, passes) for actions in lists]


def _delayed(actions: Sequence[Action], passes: int) -> list[Action]:
    forward = [action for action in actions if action.kind == "F"]
    result, later = forward[:passes], iter(forward[passes:])
    for action in actions:
        result += islice(later, 1) if action.kind == "F" else (action,)
    return result
