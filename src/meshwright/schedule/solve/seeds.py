"""Lists to begin with: those of every schedule in the table that are made for a pipeline and keep to its memory.

Whole backward passes are taken apart, W right behind I: that is never longer. One entry is played (``greedy.py``) for
whatever placement and limit, so that there always is one.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from meshwright.schedule import SCHEDULES
from meshwright.schedule.action import Action
from meshwright.schedule.automatic import shortest_lists
from meshwright.schedule.dependencies import Ways
from meshwright.schedule.game import EPSILON
from meshwright.schedule.memory import peaks
from meshwright.schedule.passes import KINDS, Orders
from meshwright.schedule.pipeline import Pipeline

PLAYED = "greedy"


class Seed(NamedTuple):
    """Lists of codes (``passes.py``), and whose they are."""

    name: str
    orders: Orders


def seeds(pipeline: Pipeline) -> Iterator[Seed]:
    """The lists of every schedule that keeps to the limit, equal ones once."""
    known: list[Orders] = []
    for name, lists in _all_lists(pipeline):
        orders = split_orders(lists, pipeline.stages)
        if max(peaks(lists, Ways(pipeline.stages), pipeline.times.kept)) > pipeline.memory_limit + EPSILON:
            continue
        if orders not in known:
            known.append(orders)
            yield Seed(name, orders)


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
    """Lists as codes, B as I and W."""
    codes = {kind: KINDS.index(kind) * stages for kind in KINDS}
    return [
        [
            codes[kind] + (a.stage or 0)
            for a in actions
            for kind in (("I", "W") if a.kind == "B" else (a.kind,))
        ]
        for actions in lists
    ]
