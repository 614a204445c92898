"""Run a step of work on all ranks so that it succeeds on all or fails on all."""

from collections.abc import Callable
from typing import TypeVar

import torch.distributed as dist

from meshwright.errors import InputError, Problem
from meshwright.runtime.checkpoint.run_folder import NoSpaceError
from meshwright.runtime.executor.rank import Rank

T = TypeVar("T")


def all_or_none(rank: Rank, what: str, attempt: Callable[[], T]) -> list[T]:
    """Call ``attempt`` on every rank and return all ranks' values.

    Raises InputError on all ranks with everyone's problems: NoSpaceError where a disk is full.

    ``what`` names the work in the error if a rank dies before it answers. Every value goes to all ranks: keep it small.
    """
    answer: tuple[T | None, tuple[Problem, ...], bool]
    try:
        answer = attempt(), (), False
    except InputError as error:
        answer = None, error.problems, isinstance(error, NoSpaceError)
    ranks = range(rank.place.ranks)
    everyone: list[tuple[T, tuple[Problem, ...], bool]] = [(None, (), False)] * len(ranks)  # type: ignore[list-item]
    rank.communicator.current.text = "between steps"
    with rank.communicator.naming(what, tuple(ranks)):
        dist.all_gather_object(everyone, answer)
    problems = {str(problem): problem for _, found, _ in everyone for problem in found}
    if full := [number for number, (_, _, full) in enumerate(everyone) if full]:
        raise NoSpaceError(problems.values(), full)
    if problems:
        raise InputError(problems.values())
    return [value for value, _, _ in everyone]
