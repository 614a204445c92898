"""Work that succeeds on all ranks or fails on all of them, with what every rank found."""

from collections.abc import Callable
from typing import TypeVar

import torch.distributed as dist

from meshwright.errors import InputError, Problem
from meshwright.runtime.rank import Rank

T = TypeVar("T")


def together(rank: Rank, what: str, attempt: Callable[[], T]) -> list[T]:
    """``attempt`` on every rank, and what all of them return. Raises InputError on all with everyone's problems.

    ``what`` names it, where a rank dies before it has answered. Values go to all ranks: they should be small.
    """
    answer: tuple[T | None, tuple[Problem, ...]]
    try:
        answer = attempt(), ()
    except InputError as error:
        answer = None, error.problems
    ranks = range(rank.place.ranks)
    everyone: list[tuple[T, tuple[Problem, ...]]] = [(None, ())] * len(ranks)  # type: ignore[list-item]
    rank.communicator.action = "between steps"
    with rank.communicator.naming(what, tuple(ranks)):
        dist.all_gather_object(everyone, answer)
    problems = {str(problem): problem for _, found in everyone for problem in found}
    if problems:
        raise InputError(problems.values())
    return [value for value, _ in everyone]
