"""Insert messages into action lists: a send after each result that crosses ranks, a receive before its consumer.

Where the vocabulary is spread, all ranks take part in its exchanges: a sum is entered right after the pass that makes a
rank's part of it, and whoever needs it waits there; what is broadcast is sent right after the pass that makes it, and
stands before its consumer on the other ranks.

One channel per (sender, receiver) and direction of travel: activations and gradients between the same two ranks
in the same direction share it, in the order in which the sender produces them. A receiver that posts in the
channel's order can not take the wrong message; that a list also can not deadlock is proven by
``program/pipeline_messages/nccl_deadlock_check.py``.
"""

from collections.abc import Sequence

from meshwright.schedules.action import VOCABULARY_KINDS, Action, ActionLists
from meshwright.schedules.dependencies import StageChains


def insert_messages(
    lists: ActionLists, placement: Sequence[int], ways: StageChains | None = None
) -> list[list[Action]]:
    """Add SEND and RECV actions; ``placement[s]`` is the rank of stage s.

    All stages are one chain if nothing is said; no message goes from a chain to another. Where the vocabulary is spread
    its exchanges are added too.
    """
    ways = ways or StageChains(len(placement))
    return [
        [step for action in actions for step in _with_exchanges(action, rank, placement, ways)]
        for rank, actions in enumerate(lists)
    ]


def _with_exchanges(action: Action, rank: int, placement: Sequence[int], ways: StageChains) -> list[Action]:
    stage, m = action.stage, action.micro_batch
    if stage is None:
        return [action]
    if action.kind in VOCABULARY_KINDS:
        return _around_share(action, rank, placement, ways)
    around = _around(action, placement, ways)
    if ways.barriers and action.kind == "F" and ways.is_last(stage):
        around.append(Action("BROADCAST_F", ways.stages + rank, m))
    if ways.barriers and action.kind in ("B", "I") and ways.is_first(stage):
        around.append(Action("BROADCAST_B", ways.stages + rank, m))
    return around


def _around_share(action: Action, rank: int, placement: Sequence[int], ways: StageChains) -> list[Action]:
    """Return a share's pass with the broadcast before it, or the sum that it contributes to."""
    share, m = action.stage, action.micro_batch
    if action.kind == "S":
        comes = [] if rank == placement[-1] else [Action("BROADCAST_F", share, m)]
        return [*comes, action, Action("REDUCE_S", share, m)]
    if action.kind == "T":
        return [action, *([Action("REDUCE_T", share, m)] if ways.barriers > 1 else [])]
    if action.kind == "E":
        return [action, Action("REDUCE_E", share, m)]
    return [*([] if rank == placement[0] else [Action("BROADCAST_B", share, m)]), action]


def _around(action: Action, placement: Sequence[int], ways: StageChains) -> list[Action]:
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
