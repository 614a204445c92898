"""Infer the pipeline of given lists: ranks, stages, chains of stages, micro-batches.

Stages and micro-batches are numbered from 0 without gaps. A stage lies on the rank that has most of its passes. The
stages form one way through the model, or two of equal length (``schedules/dependencies.py``) if each has as many
stages as there are ranks and most micro-batches are seen on one of them only.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

from meshwright.errors import InputError, Problem
from meshwright.schedules.action import COMPUTE_KINDS, ActionLists
from meshwright.schedules.dependencies import StageChains

NAMED = 3
"""So many missing numbers are named."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Stage s is on rank ``placement[s]``; ``micro_batches[c]`` go the c-th way."""

    ranks: int
    placement: tuple[int, ...]
    ways: StageChains
    micro_batches: tuple[tuple[int, ...], ...]

    @property
    def chunks(self) -> int:
        """The most stages that a rank has."""
        return max(Counter(self.placement).values())

    @property
    def total(self) -> int:
        """M, the micro-batches of all ways."""
        return sum(map(len, self.micro_batches))


def shape_of(lists: ActionLists) -> Shape:
    """Return the shape of lists of passes. Raise InputError with every reason why they have none."""
    problems = list(_strangers(lists)) + list(_idle(lists))
    if problems:
        raise InputError(problems)
    on_rank = [Counter(action.stage or 0 for action in actions) for actions in lists]
    stages = {stage for found in on_rank for stage in found}
    numbers = {action.micro_batch or 0 for actions in lists for action in actions}
    problems = [*_gaps("stage", stages), *_gaps("micro-batch", numbers)]
    if problems:
        raise InputError(problems)
    ways, micro_batches = _ways(lists, len(stages))
    return Shape(len(lists), _placement(on_rank), ways, micro_batches)


def _placement(on_rank: Sequence[Counter[int]]) -> tuple[int, ...]:
    """Return the rank that has most passes of each stage, the first one among equals."""
    of_rank = ((stage, n, -rank) for rank, found in enumerate(on_rank) for stage, n in found.items())
    most = {
        stage: -rank for stage, _, rank in sorted(of_rank)
    }  # the last one of a stage is the one that counts
    return tuple(most.values())


def _strangers(lists: ActionLists) -> Iterator[Problem]:
    """Actions that are no passes."""
    for rank, actions in enumerate(lists):
        kinds = {action.kind: action for action in actions if action.kind not in COMPUTE_KINDS}
        for action in kinds.values():
            rule = "is no pass of a micro-batch; bare lists hold passes only"
            yield Problem(f"lists.{rank}", str(action), rule, f"leave {action.kind} out: F, B, I and W alone")


def _idle(lists: ActionLists) -> Iterator[Problem]:
    if not lists:
        yield Problem("lists", None, "there are none", "a list of passes for each rank")
    for rank, actions in enumerate(lists):
        if not actions:
            yield Problem(
                f"lists.{rank}", "", "the rank has nothing to do", "give it passes, or leave it out"
            )


def _gaps(what: str, found: Collection[int]) -> Iterator[Problem]:
    last = max(found)
    if last >= len(found):
        missing = list(islice((number for number in count() if number not in found), NAMED))
        named = ", ".join(str(number) for number in missing if number <= last)
        more = last + 1 - len(found) - len(missing)
        others = f" and {more} others" if more > 0 else ""
        rule = f"numbers go from 0 to {last}, and no pass has {what} {named}{others}"
        hint = f"number them 0 to {len(found) - 1}, or add the passes"
        yield Problem("lists", f"{what} {last}", rule, hint)


def _ways(lists: ActionLists, stages: int) -> tuple[StageChains, tuple[tuple[int, ...], ...]]:
    half = stages // 2
    low, high = Counter[int](), Counter[int]()
    for actions in lists:
        low.update(a.micro_batch or 0 for a in actions if (a.stage or 0) < half)
        high.update(a.micro_batch or 0 for a in actions if (a.stage or 0) >= half)
    numbers = sorted({*low, *high})
    both = sum(number in low and number in high for number in numbers)
    if stages % 2 or half < len(lists) or 2 * both >= len(numbers):
        return StageChains(stages), (tuple(numbers),)
    first = tuple(number for number in numbers if low[number] >= high[number])
    return StageChains(stages, 2), (first, tuple(number for number in numbers if low[number] < high[number]))
