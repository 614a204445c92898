"""Run a step of work on all ranks so that it succeeds on all or fails on all."""

from collections.abc import Callable
from typing import TypeVar

import torch.distributed as dist

from meshwright.errors import InputError, Problem
from meshwright.runtime.executor.rank import Rank

T = TypeVar("T")


def all_or_none(rank: Rank, what: str, attempt: Callable[[], T]) -> list[T]:
    """Call ``attempt`` on every rank and return all ranks' values.

    Raises InputError on all ranks with everyone's problems.

    ``what`` names the work in the error if a rank dies before it answers. Every value goes to all ranks: keep it small.
    """
    answer: tuple[T | None, tuple[Problem, ...]]
    try:
        answer = attempt(), ()
    except InputError as error:
        answer = None, error.problems
    ranks = range(rank.place.ranks)
    everyone: list[tuple[T, tuple[Problem, ...]]] = [(None, ())] * len(ranks)  # type: ignore[list-item]
    rank.communicator.current.text = "between steps"
    with rank.communicator.naming(what, tuple(ranks)):
        dist.all_gather_object(everyone, answer)
    problems = {str(problem): problem for _, found in everyone for problem in found}
    if problems:
        raise InputError(problems.values())
    return [value for value, _ in everyone]
