"""Check that lists of actions have the messages between stages that their passes need, and no others.

Each boundary between ranks is crossed once each way by each micro-batch, after the pass that makes the message and
before the pass that needs it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from meshwright.errors import Problem
from meshwright.schedules.action import MESSAGES, SENDS, Action, ActionLists
from meshwright.schedules.custom.check_lists import first_of
from meshwright.schedules.custom.inferred_shape import Shape
from meshwright.schedules.insert_messages import insert_messages


def given_message_problems(lists: ActionLists, passes: ActionLists, shape: Shape) -> list[Problem]:
    """Return the problems of the messages in lists with these valid ``passes``; nothing for lists without messages."""
    if not any(action.kind in MESSAGES for actions in lists for action in actions):
        return []
    expected = insert_messages(passes, shape.placement, shape.ways)
    return first_of(_unmatched(lists, expected)) + first_of(_misplaced(lists))


def _unmatched(lists: ActionLists, expected: ActionLists) -> Iterator[Problem]:
    for rank, (actions, right) in enumerate(zip(lists, expected, strict=True)):
        here, there = (Counter(a for a in side if a.kind in MESSAGES) for side in (actions, right))
        for action in (there - here).elements():
            yield Problem(f"lists.{rank}", str(action), "a message that is missing", f"add {action}")
        for action in (here - there).elements():
            yield Problem(f"lists.{rank}", str(action), "a message that nobody needs", f"take {action} out")


def _misplaced(lists: Sequence[Sequence[Action]]) -> Iterator[Problem]:
    """Results that are sent before they are there, and inputs that come after they are needed."""
    for rank, actions in enumerate(lists):
        place = {action: position for position, action in enumerate(actions)}
        for action, position in place.items():
            if action.kind in MESSAGES:
                yield from _next_to_its_pass(rank, action, position, place)


def _next_to_its_pass(
    rank: int, message: Action, position: int, place: dict[Action, int]
) -> Iterator[Problem]:
    kinds = ("F",) if message.kind[-1] == "F" else ("B", "I")
    for kind in kinds:
        other = Action(kind, message.stage, message.micro_batch)  # type: ignore[arg-type]
        if other in place and (place[other] < position) != (message.kind in SENDS):
            first, then = (other, message) if message.kind in SENDS else (message, other)
            rule = f"stands at {position}, and {other} at {place[other]}"
            yield Problem(f"lists.{rank}", str(message), rule, f"{first} before {then}")
