"""Embedding passes in lists with S and T: each rank looks up its rows and gets their gradients.

E of a micro-batch stands on every rank where the first stage begins the forward pass of the micro-batch before, D where
it has begun the backward pass of the micro-batch behind: that leaves both exchanges a micro-batch of time (arXiv
2411.05288, appendix). The places are found by playing the lists. What begins before a moment waits for nothing that
begins after it, so that a cut through all lists at one moment leaves them playable: E goes into the cut before the
moment, D into the one behind it.
"""

from collections.abc import Iterator, Sequence

from meshwright.schedules.action import Action, ActionLists
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.stage_times import StageTimes
from meshwright.schedules.timeline import run
from meshwright.schedules.vocabulary.pass_times import durations

Place = tuple[float, int, int]
"""A moment, what comes first of things at that moment, and a number in its list."""
LOOKED_UP, LISTED, ADDED = range(3)


def with_embedding_passes(
    lists: ActionLists, placement: Sequence[int], times: StageTimes, ways: StageChains
) -> list[list[Action]]:
    """Add E and D of every micro-batch on every rank to lists with S and T; ``ways`` are those of the lists."""
    starts = run(lists, durations(times, times.share), times.message, ways).start
    entry = list(zip(starts[placement[0]], lists[placement[0]], strict=True))
    forward = [(at, a.micro_batch or 0) for at, a in entry if a.kind == "F" and a.stage == 0]
    backward = [(at, a.micro_batch or 0) for at, a in entry if a.kind in ("B", "I") and a.stage == 0]
    result = []
    for rank, actions in enumerate(lists):
        places: list[tuple[Place, Action]] = [
            ((at, LISTED, number), action)
            for number, (at, action) in enumerate(zip(starts[rank], actions, strict=True))
        ]
        places += _looked_up(forward, ways.stages + rank)
        places += _added(backward, ways.stages + rank)
        result.append([action for _, action in sorted(places, key=lambda place: place[0])])
    return result


def _looked_up(forward: Sequence[tuple[float, int]], share: int) -> Iterator[tuple[Place, Action]]:
    before = [float("-inf"), *(at for at, _ in forward)]
    for number, (at, (_, micro_batch)) in enumerate(zip(before, forward, strict=False)):
        yield (at, LOOKED_UP, number), Action("E", share, micro_batch)


def _added(backward: Sequence[tuple[float, int]], share: int) -> Iterator[tuple[Place, Action]]:
    behind = [*(at for at, _ in backward[1:]), float("inf")]
    for number, (at, (_, micro_batch)) in enumerate(zip(behind, backward, strict=True)):
        yield (at, ADDED, number), Action("D", share, micro_batch)
