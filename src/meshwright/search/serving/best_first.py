"""Evaluate alternatives in the order of their bounds until no other one can be among the best."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.search.serving.candidate_table import Goal, Table

FIRST_BLOCK, LARGEST_BLOCK = 128, 2048


class Incumbents:
    """The best scores so far, one for each group of candidates that count as one; the least that is still wanted."""

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.best: dict[Any, float] = {}

    def add(self, groups: list[Any], scores: list[float]) -> None:
        """Add candidates."""
        for group, score in zip(groups, scores, strict=True):
            if score > self.best.get(group, -np.inf):
                self.best[group] = score

    @property
    def least(self) -> float:
        """The score that a further candidate must reach to be shown."""
        if len(self.best) < self.enough:
            return -np.inf
        return sorted(self.best.values(), reverse=True)[self.enough - 1]


def best_first(
    bounds: NDArray[np.float64],
    evaluate: Callable[[NDArray[np.int64]], Table],
    goal: Goal,
    incumbents: Incumbents,
    group: Callable[[Table], list[Any]],
) -> tuple[list[Table], int]:
    """Return the feasible candidates that were evaluated, and how many alternatives were.

    ``bounds`` are upper bounds of scores, −infinity for what is out of the question. Alternatives whose bound is below
    the least score that is wanted are not evaluated.
    """
    order = np.argsort(-bounds, kind="stable")
    order = order[bounds[order] > -np.inf]
    found: list[Table] = []
    begin, size = 0, FIRST_BLOCK
    while begin < len(order) and bounds[order[begin]] >= incumbents.least:
        block = order[begin : begin + size]
        block = block[bounds[block] >= incumbents.least]
        table = evaluate(block)
        incumbents.add(group(table), goal.scores(table).tolist())
        found.append(table)
        begin, size = begin + len(block), min(2 * size, LARGEST_BLOCK)
    return found, begin
