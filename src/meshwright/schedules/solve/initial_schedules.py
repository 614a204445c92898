"""Initial lists of the solver: given ones, and every schedule of the table that fits the pipeline and its memory.

Whole backward passes are taken apart, W right behind I: that is never longer. One entry is played
(``split_backward/greedy_order.py``) for whatever placement and limit, so that there always is one. Where stages hold
unequally much none of them may fit: then micro-batches go through the pipeline one at a time, if at least that does.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from meshwright.schedules.action import Action
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.pipeline import Pipeline
from meshwright.schedules.solve.solver_input import SolverInput
from meshwright.schedules.split_backward.pass_numbers import KINDS, Orders
from meshwright.schedules.split_backward.shortest_lists import shortest_lists

PLAYED, ALONE = "greedy", "one micro-batch at a time"


class Seed(NamedTuple):
    """Lists of codes (``split_backward/pass_numbers.py``), and whose they are."""

    name: str
    orders: Orders


def seeds(task: SolverInput) -> Iterator[Seed]:
    """Return the lists of every schedule of the table that keeps to the limit, without duplicates."""
    met: list[Orders] = []
    for name, lists in chain(task.initial, _all_lists(task.pipeline)):
        orders = split_orders(lists, task.pipeline.stages)
        if task.keeps(orders) and orders not in met:
            met.append(orders)
            yield Seed(name, orders)
    alone = _one_at_a_time(task.pipeline)
    if not met and task.keeps(alone):
        yield Seed(ALONE, alone)


def _one_at_a_time(pipeline: Pipeline) -> Orders:
    """Every micro-batch when the one before it is done."""
    stages, orders = pipeline.stages, []
    for rank in range(pipeline.ranks):
        mine = [stage for stage, on in enumerate(pipeline.placement) if on == rank]
        back = [code for stage in reversed(mine) for code in (stages + stage, 2 * stages + stage)]
        orders.append([*mine, *back] * pipeline.micro_batches)
    return orders


def _all_lists(pipeline: Pipeline) -> Iterator[tuple[str, list[list[Action]]]]:
    ranks, count, chunks = pipeline.ranks, pipeline.micro_batches, pipeline.chunks
    for name, kind in SCHEDULES.items():
        made_for_it = (
            kind.chains == 1 and kind.allows(chunks) and not kind.fault(ranks, count, pipeline.knobs)
        )
        if made_for_it and kind.placement(ranks, chunks) == pipeline.placement:
            yield name, kind.lists(ranks, count, chunks, pipeline.times, pipeline.knobs)
    yield PLAYED, shortest_lists(pipeline, pipeline.memory_limit, ())


def split_orders(lists: Sequence[Sequence[Action]], stages: int) -> Orders:
    """Return the lists as codes, with B as I and W."""
    codes = {kind: KINDS.index(kind) * stages for kind in KINDS}
    return [
        [
            codes[kind] + (a.stage or 0)
            for a in actions
            for kind in (("I", "W") if a.kind == "B" else (a.kind,))
        ]
        for actions in lists
    ]
