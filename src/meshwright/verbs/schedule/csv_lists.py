"""Read a schedule from a CSV file: passes, with or without messages, checked for deadlock.

Without messages they are put where ``program/pipeline_messages/insert_messages.py`` puts them: behind their
producer, before their consumer. With messages (``0SEND_F0``) each boundary between ranks must be crossed once each
way by each micro-batch, behind its pass and before the next; then
``program/pipeline_messages/nccl_deadlock_check.py`` plays them under NCCL's rules.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from meshwright.errors import InputError, Problem
from meshwright.program.pipeline_messages.insert_messages import insert_messages
from meshwright.program.pipeline_messages.nccl_deadlock_check import check_messages
from meshwright.schedules.action import MESSAGES, SENDS, Action, ActionLists
from meshwright.schedules.custom.check_lists import check_lists, first_of
from meshwright.schedules.custom.csv_file import lists_from_csv, read_lists, without_messages
from meshwright.schedules.custom.custom_schedule import CustomSchedule
from meshwright.schedules.custom.inferred_shape import Shape, shape_of


def lists_of_file(path: str) -> tuple[list[list[Action]], Shape]:
    """Read the passes of a CSV file and the shape of their pipeline. Raise InputError with every problem."""
    lists = read_lists(path)
    passes = without_messages(lists)
    problems = check_lists(passes)
    if problems:
        raise InputError(problems)
    shape = shape_of(passes)
    problems = message_problems(lists, passes, shape)
    if problems:
        raise InputError(problems)
    return passes, shape


def message_problems_of(schedule: CustomSchedule) -> list[Problem]:
    """Return the problems of the messages in lists of a plan; nothing where the lists have other problems."""
    if schedule.problems:
        return []
    lists = lists_from_csv("\n".join(schedule.lines))
    passes = without_messages(lists)
    if passes == lists:
        return []
    return list(map(schedule.in_place, message_problems(lists, passes, shape_of(passes))))


def message_problems(lists: ActionLists, passes: ActionLists, shape: Shape) -> list[Problem]:
    """Return the problems of the messages of lists whose passes are valid."""
    expected = insert_messages(passes, shape.placement, shape.ways)
    if lists == passes:
        return check_messages(expected, shape.placement)
    problems = first_of(_unmatched(lists, expected)) + first_of(_misplaced(lists))
    return problems or check_messages(lists, shape.placement)


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
