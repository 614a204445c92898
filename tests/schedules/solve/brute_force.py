"""The shortest makespan of a pipeline, from all lists that there are."""

from collections.abc import Iterator
from itertools import product

from meshwright.play.execution_order import DeadlockError
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.pipeline import Pipeline
from meshwright.schedules.solve import SolverInput, StageMemory
from meshwright.schedules.split_backward.pass_numbers import Pass, numbered
from meshwright.schedules.timeline import played


def shortest_of_all(task: SolverInput) -> float:
    """Every order of every rank's passes, micro-batches in turn."""
    pipeline = task.pipeline
    place, found = pipeline.placement, float("inf")
    mine = [[stage for stage, on in enumerate(place) if on == rank] for rank in range(pipeline.ranks)]
    for orders in product(*(list(_orders(pipeline, stages, task.holding)) for stages in mine)):
        try:
            timeline = played(numbered(orders, pipeline.stages), pipeline.times, StageChains(pipeline.stages))
        except DeadlockError:
            continue
        found = min(found, timeline.makespan if task.goal == "makespan" else timeline.latency)
    return found


def _orders(pipeline: Pipeline, stages: list[int], holding: StageMemory) -> Iterator[list[Pass]]:
    """Every order of a rank in which F comes before I and I before W, within its memory."""
    total = 3 * len(stages) * pipeline.micro_batches
    kinds = len(pipeline.placement)

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
                    if holding.keeps(more):
                        yield from longer(more)

    yield from longer([])
