"""Breadth-first pipeline (Lamy-Poirier, arXiv 2211.05953): V chunks a rank in a loop, and one chunk after the other.

A unit of micro-batches, all of them if the plan names no number, goes forward through a rank's first chunk, then the
second, and so on; then backward through the last chunk, the one before, down to the first. The parameters of a stage
are needed once for F and once for B in each unit, which suits sharded ones. The bubble of each unit of at least P
micro-batches is (P−1)·(F+B)/V of a rank's times, as interleaved 1F1B has it once; the price is memory: a whole unit is
in flight.
"""

from meshwright.schedules.action import Action
from meshwright.schedules.micro_batch_units import units
from meshwright.schedules.pipeline import Pipeline


def looped_bfs(pipeline: Pipeline) -> list[list[Action]]:
    """One list per rank; rank r holds stages r, r + P, …, r + (V−1)P."""
    together = units(pipeline.micro_batches, pipeline.unit)
    stages = [range(rank, pipeline.stages, pipeline.ranks) for rank in range(pipeline.ranks)]
    return [[action for unit in together for action in _unit_passes(mine, unit)] for mine in stages]


def looped_bfs_in_flight(rank: int, ranks: int, micro_batches: int, chunks: int) -> int:
    """All of them in every chunk."""
    return micro_batches * chunks


def _unit_passes(stages: range, unit: range) -> list[Action]:
    forward = [Action("F", stage, m) for stage in stages for m in unit]
    return forward + [Action("B", stage, m) for stage in reversed(stages) for m in unit]
