"""Read a schedule from a CSV file: passes, with or without messages, checked for deadlock.

Without messages they are put where ``schedules/insert_messages.py`` puts them: behind their
producer, before their consumer. With messages (``0SEND_F0``) each boundary between ranks must be crossed once each
way by each micro-batch, behind its pass and before the next; then
``program/pipeline_messages/nccl_deadlock_check.py`` plays them under NCCL's rules.
"""

from meshwright.errors import InputError, Problem
from meshwright.frameworks.import_formats import is_plan
from meshwright.plans.files.plan_file import refuse_serving
from meshwright.program.pipeline_messages.nccl_deadlock_check import check_messages
from meshwright.schedules.action import Action, ActionLists
from meshwright.schedules.custom.check_lists import check_lists
from meshwright.schedules.custom.check_messages import given_message_problems
from meshwright.schedules.custom.csv_file import lines_of_file, lists_from_csv, without_messages
from meshwright.schedules.custom.inferred_shape import Shape, shape_of
from meshwright.schedules.insert_messages import insert_messages


def lists_of_file(path: str) -> tuple[list[list[Action]], Shape]:
    """Read the passes of a CSV file and the shape of their pipeline. Raise InputError with every problem."""
    text = "\n".join(lines_of_file(path))
    if is_plan(text):
        refuse_serving(text, path)
    lists = lists_from_csv(text, path)
    passes = without_messages(lists)
    problems = check_lists(passes)
    if problems:
        raise InputError(problems)
    shape = shape_of(passes)
    problems = message_problems(lists, passes, shape)
    if problems:
        raise InputError(problems)
    return passes, shape


def message_problems(lists: ActionLists, passes: ActionLists, shape: Shape) -> list[Problem]:
    """Return the problems of the messages of lists whose passes are valid."""
    if lists == passes:
        return check_messages(insert_messages(passes, shape.placement, shape.ways), shape.placement)
    return given_message_problems(lists, passes, shape) or check_messages(lists, shape.placement)
