"""Check the vocabulary passes of custom lists: E, S, T and D of every micro-batch on every rank.

Those of rank r have the stage K + r, behind the K stages. The exchanges around them are put in as messages are: each
kind has a communicator of its own, on which all ranks take the micro-batches in one order. So E, S, T and D come in one
order on all ranks, S as F of the last stage and D as the backward pass of the first. Whether the ranks wait for each
other depends on the barriers of the form that a plan names.
"""

from collections import Counter
from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.play.execution_order import DeadlockError, execution_order
from meshwright.schedules.action import VOCABULARY_KINDS, Action, ActionLists, Kind
from meshwright.schedules.custom.check_lists import first_of
from meshwright.schedules.custom.inferred_shape import Shape
from meshwright.schedules.dependencies import StageChains

BARRIERS = (1, 2)
"""How often forms let all ranks wait for each other behind the last stage."""
LEADS: dict[Kind, tuple[tuple[Kind, ...], int]] = {"S": (("F",), -1), "D": (("B", "I"), 0)}
"""What is broadcast to a kind of share, and of which stage."""


def without_vocabulary_passes(lists: ActionLists) -> list[list[Action]]:
    """Return the passes of stages alone."""
    return [[action for action in actions if action.kind not in VOCABULARY_KINDS] for actions in lists]


def vocabulary_pass_problems(lists: ActionLists, shape: Shape) -> list[Problem]:
    """Return the problems of vocabulary passes, where the stages' passes are valid."""
    if shape.ways.chains > 1:
        rule = "micro-batches end on two ranks, and a vocabulary is spread behind one last stage"
        return [Problem("lists", f"{shape.ways.chains} ways", rule, "leave E, S, T and D out")]
    found = first_of(_every_share_once(lists, shape)) or first_of(_one_order(lists, shape))
    if not found and not playable_barriers(lists, shape):
        rule = "the ranks wait for each other, with one barrier behind the last stage and with two"
        hint = (
            "S behind F of the last stage, T behind S of all ranks, and B or I of the last stage behind them"
        )
        found.append(Problem("lists", _stuck(lists, shape, BARRIERS[0]), rule, hint))
    return found


def playable_barriers(lists: ActionLists, shape: Shape) -> tuple[int, ...]:
    """With how many barriers the ranks do not wait for each other."""
    return tuple(barriers for barriers in BARRIERS if not _stuck(lists, shape, barriers))


def _stuck(lists: ActionLists, shape: Shape, barriers: int) -> str:
    """Return the passes that the ranks are stuck at, if they are."""
    try:
        execution_order(
            lists, StageChains(shape.ways.stages, barriers=barriers, ranks=shape.ranks, rows=True)
        )
    except DeadlockError as error:
        return " ".join(map(str, error.waiting))
    return ""


def _every_share_once(lists: ActionLists, shape: Shape) -> Iterator[Problem]:
    """Each rank has E, S, T and D of its own share for each micro-batch."""
    for rank, actions in enumerate(lists):
        share = shape.ways.stages + rank
        found = Counter(action for action in actions if action.kind in VOCABULARY_KINDS)
        for micro_batch in shape.micro_batches[0]:
            for kind in VOCABULARY_KINDS:
                action = Action(kind, share, micro_batch)
                times = found.pop(action, 0)
                if times > 1:
                    yield Problem(f"lists.{rank}", str(action), f"is there {times} times", f"{action} once")
                elif not times:
                    yield Problem(f"lists.{rank}", str(action), "is missing", f"add {action}")
        for action in found:
            rule = f"is no pass of this rank's share of the vocabulary, which is {share}"
            yield Problem(f"lists.{rank}", str(action), rule, f"take {action} out, or number it {share}")


def _one_order(lists: ActionLists, shape: Shape) -> Iterator[Problem]:
    """All ranks take the micro-batches of each kind in one order, that of what is broadcast to it."""
    for kind in VOCABULARY_KINDS:
        kinds, stage = LEADS.get(kind, ((kind,), None))
        leader = 0 if stage is None else shape.placement[stage]
        at_stage = None if stage is None else range(shape.ways.stages)[stage]
        order = [a for a in lists[leader] if a.kind in kinds and (at_stage is None or a.stage == at_stage)]
        for rank, actions in enumerate(lists):
            mine = [action for action in actions if action.kind == kind]
            for action, first in zip(mine, order, strict=True):
                if action.micro_batch != first.micro_batch:
                    rule = f"stands where {first} stands on rank {leader}, and a communicator keeps its order"
                    yield Problem(f"lists.{rank}", str(action), rule, "one order on all ranks")
                    break
