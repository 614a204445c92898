"""ZeroPP: units of micro-batches go through looped chunks, and W fills the gaps (Tang et al., arXiv 2402.03791).

A unit of U micro-batches, P if the plan does not say, goes forward through a rank's chunks one by one, then I goes back
through them one by one, then the next unit comes. Parameters that are sharded (the paper has pipelines of ZeRO-3) are
gathered once for all F of a stage and unit, and once for all I of them
(``program/model_states/per_unit_gather_and_reduce.py``), so that a larger unit gathers less often and holds more. P
is the least that keeps all ranks busy, and the least memory.

Between its last F and the first I of a unit rank r waits for the P−1−r ranks behind it, and at the end for as long as
the ranks before it: together (P−1)(F+I) of a chunk. W of the unit before and of the unit itself fill that. The first
unit has none from before; so with equal passes and no messages, over all n units, the bubble is

    (P−1)(F+I) + (n−1)·max(0, (P−1)(F+I) − V·U·W)    in times of a chunk.

A rank holds a unit, V·U passes, and the part that I leaves of as many more as there are W in its wait for the first I;
what does not fit runs W first (``schedules/split_backward/weight_gradient_filling.py``).
"""

from math import ceil

from meshwright.schedules.action import Action
from meshwright.schedules.micro_batch_units import units
from meshwright.schedules.pipeline import Pipeline
from meshwright.schedules.split_backward.pass_numbers import Orders, Pass, numbered
from meshwright.schedules.split_backward.pipeline_state import EPSILON
from meshwright.schedules.split_backward.shortest_lists import filled_orders


def zeropp(pipeline: Pipeline) -> list[list[Action]]:
    """One list per rank; rank r holds stages r, r + P, …, r + (V−1)P."""
    limits = [_most_held(pipeline, rank, pipeline.unit) for rank in range(pipeline.ranks)]
    found = filled_orders(_orders(pipeline, pipeline.unit), pipeline, limits)
    return numbered(min(found, key=lambda played: played.makespan).passes, pipeline.stages)


def zeropp_unit_fault(ranks: int, micro_batches: int, unit: int) -> str | None:
    """Why so many micro-batches can not go together; None where they can."""
    return None if unit >= ranks else f"unit = {unit} must be pp = {ranks} at least"


def _orders(pipeline: Pipeline, unit: int) -> Orders:
    stages, together = pipeline.stages, units(pipeline.micro_batches, unit)
    orders = []
    for rank in range(pipeline.ranks):
        mine, order = range(rank, stages, pipeline.ranks), list[Pass]()
        for micro_batches in together:
            order += [stage for stage in mine for _ in micro_batches]
            order += [stages + stage for stage in reversed(mine) for _ in micro_batches]
        orders.append(order)
    return orders


def _most_held(pipeline: Pipeline, rank: int, unit: int) -> float:
    """Return the memory of a unit, and of W during the wait between a rank's last F and the first I."""
    times = pipeline.times
    behind = range(pipeline.stages - pipeline.ranks + rank + 1, pipeline.stages)
    wait = sum(times.forward[stage] + times.input[stage] + 2 * times.message for stage in behind)
    weight, whole = min(times.weight[rank :: pipeline.ranks]), unit * pipeline.chunks
    fill_it = ceil(wait / weight - EPSILON) if weight * whole > wait else whole
    return whole + times.kept * fill_it
