"""Insertion of messages: a send right after each action whose result crosses ranks, a receive before its consumer.

One channel per (sender, receiver) and direction of travel: activations and gradients between the same two ranks
in the same direction share it, in the order in which the sender produces them. A receiver that posts in the
channel's order can not take the wrong message; ``rendezvous.py`` proves that a list also can not deadlock.
"""

from collections.abc import Sequence

from meshwright.schedule.action import Action, ActionLists
from meshwright.schedule.dependencies import Ways


def insert_messages(
    lists: ActionLists, placement: Sequence[int], ways: Ways | None = None
) -> list[list[Action]]:
    """Add SEND and RECV actions; ``placement[s]`` is the rank of stage s.

    All stages are one chain if nothing is said; no message goes from a chain to another.
    """
    ways = ways or Ways(len(placement))
    return [[step for action in actions for step in _around(action, placement, ways)] for actions in lists]


def _around(action: Action, placement: Sequence[int], ways: Ways) -> list[Action]:
    stage, m = action.stage, action.micro_batch
    assert stage is not None
    below = not ways.is_first(stage) and placement[stage - 1] != placement[stage]
    above = not ways.is_last(stage) and placement[stage + 1] != placement[stage]
    if action.kind == "F":
        return [
            *([Action("RECV_F", stage, m)] if below else []),
            action,
            *([Action("SEND_F", stage, m)] if above else []),
        ]
    if action.kind in ("B", "I"):
        return [
            *([Action("RECV_B", stage, m)] if above else []),
            action,
            *([Action("SEND_B", stage, m)] if below else []),
        ]
    return [action]
