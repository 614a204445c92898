"""The shortest makespan of a pipeline, from all lists that there are."""

from collections.abc import Iterator
from itertools import product

from meshwright.schedule.check import TINY
from meshwright.schedule.dependencies import Ways
from meshwright.schedule.memory import peaks
from meshwright.schedule.order import DeadlockError
from meshwright.schedule.passes import Pass, numbered
from meshwright.schedule.pipeline import Pipeline
from meshwright.schedule.timeline import played


def shortest_of_all(pipeline: Pipeline) -> float:
    """Every order of every rank's passes, micro-batches in turn."""
    place, found = pipeline.placement, float("inf")
    mine = [[stage for stage, on in enumerate(place) if on == rank] for rank in range(pipeline.ranks)]
    for orders in product(*(list(_orders(pipeline, stages)) for stages in mine)):
        try:
            lists = numbered(orders, pipeline.stages)
            found = min(found, played(lists, pipeline.times, Ways(pipeline.stages)).makespan)
        except DeadlockError:
            continue
    return found


def _orders(pipeline: Pipeline, stages: list[int]) -> Iterator[list[Pass]]:
    """Every order of a rank in which F comes before I and I before W, within its memory."""
    total = 3 * len(stages) * pipeline.micro_batches
    ways, kinds = Ways(pipeline.stages), len(pipeline.placement)

    def longer(order: list[Pass]) -> Iterator[list[Pass]]:
        if len(order) == total:
            yield order
            return
        for stage in stages:
            for kind in range(3):
                done = order.count(kind * kinds + stage)
                before = order.count((kind - 1) * kinds + stage) if kind else pipeline.micro_batches
                if done < before:
                    more = [*order, kind * kinds + stage]
                    if kind or _fits(pipeline, more, ways):
                        yield from longer(more)

    yield from longer([])


def _fits(pipeline: Pipeline, order: list[Pass], ways: Ways) -> bool:
    lists = [*numbered([order], pipeline.stages), *[[]] * (pipeline.ranks - 1)]
    return peaks(lists, ways, pipeline.times.kept)[0] <= pipeline.memory_limit + TINY
