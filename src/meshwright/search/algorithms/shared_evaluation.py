"""Run searches, and evaluate the plans of several of them in one array.

A search is a generator: it yields the plans whose scores it needs next, is sent their scores, and returns its result.
Most of the time of a short array goes into its fixed costs. So the plans that several searches ask for are evaluated in
one array, where the searches have the same tables of names and differ only in the size of their cluster.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.search.algorithms.exhaustive import Evaluate, Floats, Scores

T = TypeVar("T")
Steps = Generator[PlanArrays, Scores, T]


@dataclass(frozen=True)
class ScoredRows:
    """The scores of some rows of an array of plans: seconds, bytes and what fits."""

    step_s: Floats
    total_bytes: Floats
    fits: NDArray[np.bool_]


def run_search(steps: Steps[T], evaluate: Evaluate) -> T:
    """Run one search. An interrupt goes to the search, which may end with what it has."""
    try:
        plans = next(steps)
        while True:
            try:
                scores = evaluate(plans)
            except KeyboardInterrupt as interrupt:
                plans = steps.throw(interrupt)
            else:
                plans = steps.send(scores)
    except StopIteration as end:
        result: T = end.value
        return result


def run_together(searches: Sequence[Steps[T]], evaluate: Evaluate) -> list[T]:
    """Run several searches; results in their order. ``evaluate`` prices plans for clusters of several sizes."""
    results: dict[int, T] = {}
    open_: dict[int, PlanArrays] = {}

    def go_on(index: int, advance: Callable[[], PlanArrays]) -> None:
        open_.pop(index, None)
        try:
            open_[index] = advance()
        except StopIteration as end:
            results[index] = end.value

    for index, steps in enumerate(searches):
        go_on(index, partial(next, steps))
    while open_:
        asked = dict(open_)
        try:
            scores = evaluate(joined_plans(list(asked.values())))
        except KeyboardInterrupt as interrupt:
            for index in asked:
                go_on(index, partial(searches[index].throw, interrupt))
            continue
        at = 0
        for index, plans in asked.items():
            own = _rows(scores, slice(at, at + len(plans)))
            at += len(plans)
            go_on(index, partial(searches[index].send, own))
    return [results[index] for index in range(len(searches))]


def _rows(scores: Scores, rows: slice) -> ScoredRows:
    return ScoredRows(scores.step_s[rows], scores.total_bytes[rows], scores.fits[rows])


def joined_plans(parts: Sequence[PlanArrays]) -> PlanArrays:
    """Return plans of clusters of several sizes, which have the same tables of names, as one array."""
    first, *others = parts
    if not others:
        return first
    assert all(part.values == first.values for part in others), "they come from one enumeration"
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in first.columns}
    return replace(first, columns=columns, several_sizes=True)
