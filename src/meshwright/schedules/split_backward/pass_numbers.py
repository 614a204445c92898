"""Passes as numbers, for simulated schedules: F of stage s is s, I is K + s, W is 2K + s.

Each stage takes micro-batches in turn, so that a list of such numbers says which micro-batch each pass belongs to.
"""

from collections.abc import Sequence
from itertools import pairwise

from meshwright.schedules.action import Action, Kind
from meshwright.schedules.pipeline import Pipeline

Pass = int
Orders = Sequence[Sequence[Pass]]
"""Passes of every rank, one behind the other."""
KINDS: tuple[Kind, ...] = ("F", "I", "W")


class PassTable:
    """By number: seconds of a pass, its rank, what it needs and where its result goes (-1: nothing or nowhere).

    ``delay`` is what the result that it needs takes to come to it.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        times, place, stages = pipeline.times, pipeline.placement, len(pipeline.placement)
        last_input = 2 * stages - 1
        between = [times.message if a != b else 0.0 for a, b in pairwise(place)]
        self.stages = stages
        self.seconds = (*times.forward, *times.input, *times.weight)
        self.rank = (*place, *place, *place)
        self.source = (*range(-1, stages - 1), *range(stages + 1, 2 * stages), stages - 1)
        self.target = (*range(1, stages), last_input, -1, *range(stages, last_input))
        self.delay = (0.0, *between, *between, 0.0)


def numbered(passes: Orders, stages: int, kinds: Sequence[Kind] = KINDS) -> list[list[Action]]:
    """Return passes as actions: the n-th pass of a kind and stage is that of micro-batch n."""
    lists = []
    for of_rank in passes:
        count = [0] * (3 * stages)
        actions = []
        for code in of_rank:
            actions.append(Action(kinds[code // stages], code % stages, count[code]))
            count[code] += 1
        lists.append(actions)
    return lists


def without_weights(passes: Orders, stages: int) -> Orders:
    """Return the order of F and I."""
    return [[code for code in of_rank if code < 2 * stages] for of_rank in passes]


def first_starts(pipeline: Pipeline) -> list[float]:
    """Return the time at which the first micro-batch can reach each rank."""
    table, starts, clock = PassTable(pipeline), [-1.0] * pipeline.ranks, 0.0
    for stage, rank in enumerate(pipeline.placement):
        clock += table.delay[stage]
        if starts[rank] < 0:
            starts[rank] = clock
        clock += table.seconds[stage]
    return starts
