"""Delay the forward passes of a schedule so that its first rank holds at most N passes (micro-batch × chunk).

Each rank keeps its order of forward passes and its order of backward passes, and merges the two anew: it runs the pass
that can begin first. A forward pass runs while the rank holds fewer than min(N, what it holds without a limit), and
behind at least as many backward passes as in the schedule's own lists. Stages count as equally long, B as two F,
messages take no time.

Order by units of u micro-batches needs (V−1)·u + 1 forward passes before the first backward pass: so many N must be at
least, and then no rank waits for ever. Proof: let j be the smallest number of backward passes that a rank has run.
The next one needs of all ranks no more than the first j + (V−1)·u + 1 forward passes, and none of those that come
later than the j-th backward pass in the schedule's own lists. So nothing prevents them.

So V ≤ N, and smaller N need smaller units than the schedule's (Llama 3, arXiv 2407.21783, section 3.3.2). Sizes are
tried from the largest down to the largest that is held whole (u·V ≤ N), each cut so that units are equal, with F first
and with B first where both can begin; the shortest lists are taken. By test, not by proof, a higher N makes no lists
longer, unless the schedule's own unit leaves a rest of the micro-batches: equal units may be quicker than those.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import ceil

from meshwright.play.in_flight import most_in_flight
from meshwright.schedules.action import Action, ActionLists, Kind
from meshwright.schedules.pipeline import Pipeline
from meshwright.schedules.split_backward.pass_numbers import Pass, numbered
from meshwright.schedules.split_backward.pipeline_state import (
    NOTHING,
    Choice,
    EarliestFirst,
    PlayedPasses,
)
from meshwright.schedules.stage_times import StageTimes

Lists = tuple[tuple[Action, ...], ...]
KINDS: tuple[Kind, ...] = ("F", "B", "W")
"""Kinds of passes by number (``split_backward/pass_numbers.py``): I is a whole backward pass, W is none."""
COMPARED = 8000


@lru_cache(maxsize=256)
def delayed_lists(
    make: Callable[[Pipeline], list[list[Action]]], pipeline: Pipeline
) -> tuple[int | None, Lists]:
    """Return the micro-batches of a unit (None without units) and the lists of ``make`` within ``knobs.in_flight``."""
    usual, most = make(pipeline), pipeline.knobs.in_flight
    held = [most_in_flight(actions) for actions in usual]
    if most is None or most >= held[0]:
        return pipeline.knobs.unit, tuple(map(tuple, usual))
    limits = [min(most, of_rank) for of_rank in held]

    def merged(count: int, unit: int | None, forward_first: bool) -> PlayedPasses:
        of_unit = replace(pipeline, micro_batches=count, knobs=replace(pipeline.knobs, unit=unit))
        return _merged(make(of_unit), of_unit, limits, forward_first)

    few = _compared(pipeline)
    ways = product(_units(pipeline, most), (False, True))
    unit, forward_first = min(ways, key=lambda way: merged(few, *way).makespan)
    best = merged(pipeline.micro_batches, unit, forward_first)
    return unit, tuple(map(tuple, numbered(best.passes, pipeline.stages, KINDS)))


def _compared(pipeline: Pipeline) -> int:
    """Return how many micro-batches are enough to compare ways to merge: about ``COMPARED`` passes, or three units."""
    enough = max(3 * pipeline.ranks, 3 * (pipeline.knobs.unit or 1), COMPARED // (2 * pipeline.stages))
    return min(pipeline.micro_batches, enough)


def _units(pipeline: Pipeline, most: int) -> Sequence[int | None]:
    """Return the sizes of units to try, the largest first; None where there are no units."""
    unit, chunks = pipeline.knobs.unit, pipeline.chunks
    if unit is None or chunks == 1:
        return (unit,)
    largest, whole = min(unit, (most - 1) // (chunks - 1)), min(unit, most // chunks)
    count = pipeline.micro_batches
    return tuple(dict.fromkeys(ceil(count / ceil(count / size)) for size in range(largest, whole - 1, -1)))


def _merged(
    lists: ActionLists, pipeline: Pipeline, limits: Sequence[int], forward_first: bool
) -> PlayedPasses:
    """Merge each rank's forward and backward passes, in the order of ``lists``."""
    stages = pipeline.stages
    times = StageTimes((1.0,) * stages, (2.0,) * stages, (0.0,) * stages, kept=0.0)
    game = _InOrder(replace(pipeline, times=times), lists, limits, forward_first)
    game.run_all()
    assert all(len(of) == len(actions) for of, actions in zip(game.passes, lists, strict=True)), (
        "ranks wait for each other"
    )
    return game.played()


class _InOrder(EarliestFirst):
    """A simulation in which every rank keeps its order of forward passes and its order of backward passes.

    ``behind`` has for each forward pass of a rank how many backward passes come before it in ``lists``.
    """

    def __init__(
        self, pipeline: Pipeline, lists: ActionLists, limits: Sequence[int], forward_first: bool
    ) -> None:
        super().__init__(pipeline)
        self.limits, self.order = limits, (0, 1) if forward_first else (1, 0)
        self.forward: list[list[Pass]] = [[] for _ in lists]
        self.backward: list[list[Pass]] = [[] for _ in lists]
        self.behind: list[list[int]] = [[] for _ in lists]
        for rank, actions in enumerate(lists):
            for action in actions:
                assert action.stage is not None
                if action.kind == "F":
                    self.forward[rank].append(action.stage)
                    self.behind[rank].append(len(self.backward[rank]))
                else:
                    self.backward[rank].append(self.stages + action.stage)
        self.begun_forward, self.begun_backward = [0] * pipeline.ranks, [0] * pipeline.ranks

    def choice(self, rank: int) -> Choice:
        """Return the next forward or the next backward pass, whichever can begin first."""
        forward, backward = self.begun_forward[rank], self.begun_backward[rank]
        best = NOTHING
        more = forward < len(self.forward[rank]) and backward >= self.behind[rank][forward]
        if more and forward - backward < self.limits[rank]:
            best = self._when(rank, self.forward[rank][forward], self.order[0])
        if backward < forward:
            best = min(best, self._when(rank, self.backward[rank][backward], self.order[1]))
        return best

    def _when(self, rank: int, code: Pass, order: int) -> Choice:
        ready = self.ready(code)
        return NOTHING if ready is None else Choice(max(ready, self.clock[rank]), order, 0, code)

    def run(self, code: Pass, ready: float = 0.0) -> None:
        """Run the next pass of a rank."""
        super().run(code, ready)
        begun = self.begun_forward if code < self.stages else self.begun_backward
        begun[self.rank[code]] += 1
