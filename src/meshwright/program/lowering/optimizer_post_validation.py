"""Optimizer post-validation: step first, check the global norm later, so that no rank waits for it.

Zero Bubble (Qi et al., arXiv 2401.10241, section 4). With one all-reduce before it, an optimizer step begins on all
pipeline ranks at once, and what ranks have begun earlier they lose. Here a step ends on rank r with

    NORM        the sums (squares of gradients, loss) over the ranks of its stages,
    RECV_NORM   plus the sums over the ranks before it,
    SEND_NORM   to the next rank,
    STEP        at once, where these sums do not forbid it: with a norm that is clipped already, or not finite, nothing
                is done yet. The last rank knows all sums.

The next step begins with forward passes, and amid them each rank has

    RECV_TOTAL  the sums over all ranks, from the next rank,
    SEND_TOTAL  to the previous one, without delay,
    VALIDATE    was the step right, on all ranks? If gradients had to be clipped, or something is not finite, what was
                done is undone, the step is taken with all sums known, and what stands before VALIDATE is run again: it
                has used, or received what was made with, wrong parameters.

So what stands before VALIDATE is made to be repeated: forward passes, their messages and gathers alone, and nothing
that waits for what stands behind VALIDATE on another rank. A rank that has begun one pass earlier for each rank behind
it, as in a pipeline that fills, has the sums in time if it has done two passes for each of them: then VALIDATE is one
pass later than on the rank behind it, which sends them on. Where there are not so many to do, it is on all ranks when
the last one begins. A step that was wrong costs these passes once more. The messages are sent in every step, also if
there is none to validate.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from meshwright.program.layouts.rank_mesh import RankGrid
from meshwright.program.program import Program
from meshwright.schedules.action import SUM_MESSAGES, Action, Kind
from meshwright.schedules.dependencies import StageChains

STAGE_AXES = ("tp", "cp", "dp_shard", "dp_replicate")
"""All ranks of a pipeline rank."""
REPEATED: tuple[Kind, ...] = ("F", "SEND_F", "RECV_F", "E", "REDUCE_E", "GATHER", "FREE")
"""What may stand before VALIDATE."""
VALIDATION: tuple[Kind, ...] = (*SUM_MESSAGES, "VALIDATE")
PASSES_PER_RANK = 2
STEADY_STEPS = 4
"""Steps that are played to see one where they overlap: by then each has the shape of the one before."""
Lists = Sequence[Sequence[Action]]


def norm_axes(afterwards: bool) -> tuple[str, ...]:
    """Return the axes that NORM sums over."""
    return STAGE_AXES if afterwards else ("world",)


def sums_on(rank: int, ranks: int) -> list[Action]:
    """Return a pipeline rank's actions between its own sums and its step."""
    received = [Action("RECV_NORM")] if rank else []
    return [Action("NORM"), *received, *([Action("SEND_NORM")] if rank + 1 < ranks else [])]


def validation_on(rank: int, ranks: int) -> list[Action]:
    """Return a pipeline rank's actions that validate the step before."""
    received = [Action("RECV_TOTAL")] if rank + 1 < ranks else []
    return [*received, *([Action("SEND_TOTAL")] if rank else []), Action("VALIDATE")]


def with_validation(lists: Lists, ways: StageChains) -> tuple[tuple[Action, ...], ...]:
    """Return the lists with the validation of the step before inserted."""
    ranks = len(lists)
    return tuple(
        (*actions[:place], *validation_on(rank, ranks), *actions[place:])
        for rank, (actions, place) in enumerate(zip(lists, _places(lists, ways), strict=True))
    )


def before_validation(actions: Sequence[Action]) -> tuple[Action, ...]:
    """Return the actions that a list repeats if the step before was wrong."""
    if Action("VALIDATE") not in actions:
        return ()
    return tuple(a for a in actions[: actions.index(Action("VALIDATE"))] if a.kind not in VALIDATION)


def _places(lists: Lists, ways: StageChains) -> list[int]:
    """Where the validation goes: as far on as all ranks come with no more passes than are of use."""
    ranks = len(lists)
    places = _together(lists, ways, [PASSES_PER_RANK * (ranks - 1 - rank) for rank in range(ranks)])
    passes: list[int] = []
    for rank, (actions, place) in enumerate(zip(lists, places, strict=True)):
        mine = sum(action.kind == "F" for action in actions[:place])
        passes.append(min(mine, max(passes[-1] - PASSES_PER_RANK, ranks - rank)) if passes else mine)
    return [
        place if any(action.kind in ("F", "E") for action in actions[:place]) else 0
        for actions, place in zip(lists, _together(lists, ways, passes), strict=True)
    ]


def _together(lists: Lists, ways: StageChains, passes: Sequence[int]) -> list[int]:
    """Return each list's longest common repeatable start, each with so many forward passes at most."""
    ends = [_end(actions, most) for actions, most in zip(lists, passes, strict=True)]
    places, walk = [0] * len(lists), _Walk(ways, len(lists))
    moved = True
    while moved:
        moved = False
        for rank, actions in enumerate(lists):
            while places[rank] < ends[rank] and walk.goes(actions[places[rank]]):
                places[rank] += 1
                moved = True
    return places


def _end(actions: Sequence[Action], passes: int) -> int:
    """Return the length of a list's repeatable start, with so many forward passes at most."""
    forward = 0
    for place, action in enumerate(actions):
        if action.kind not in REPEATED or (forward == passes and action.kind in ("F", "RECV_F")):
            return place
        forward += action.kind == "F"
    return len(actions)


class _Walk:
    """The messages and sums of ranks before they validate."""

    def __init__(self, ways: StageChains, ranks: int) -> None:
        self._ways, self._ranks = ways, ranks
        self._sent: set[Action] = set()
        self._summed: Counter[int | None] = Counter()

    def goes(self, action: Action) -> bool:
        """Run an action if it has everything that it needs of other ranks; return true if it ran."""
        m = action.micro_batch
        if action.kind == "RECV_F":
            assert action.stage is not None
            return Action("SEND_F", action.stage - 1, m) in self._sent
        if action.kind == "F" and self._ways.rows and self._ways.is_first(action.stage or 0):
            return self._summed[m] == self._ranks
        if action.kind == "SEND_F":
            self._sent.add(action)
        self._summed[m] += action.kind == "REDUCE_E"
        return True


def saves_states(program: Program, rank: int) -> bool:
    """Return true if a pipeline rank keeps the states that its step overwrites until validation."""
    return (
        program.steps_overlap and not program.stack.undoes_step_in_place and rank + 1 < program.pipeline_ranks
    )


class PostValidationSums:
    """The messages of sums while lists are played: a receive waits until its neighbour has sent."""

    def __init__(self) -> None:
        self._sent: set[tuple[Kind, int]] = set()

    def can_run(self, action: Action, rank: int) -> bool:
        """Return true if the message that an action waits for was sent."""
        sent = sender_of(action, rank)
        return sent is None or sent in self._sent

    def ran(self, action: Action, rank: int) -> None:
        """Record that an action has run."""
        if action.kind in SUM_MESSAGES:
            self._sent.add((action.kind, rank))


def sender_of(action: Action, rank: int) -> tuple[Kind, int] | None:
    """Return the action and pipeline rank that send what a rank receives; None for all other actions."""
    senders: dict[Kind, tuple[Kind, int]] = {
        "RECV_NORM": ("SEND_NORM", rank - 1),
        "RECV_TOTAL": ("SEND_TOTAL", rank + 1),
    }
    return senders.get(action.kind)


def sum_neighbours(grid: RankGrid) -> Iterator[tuple[int, int]]:
    """Pairs of ranks of which the first sends sums to the second."""
    for row in grid.groups(("pp",)).tolist():
        for one, other in pairwise(row):
            yield one, other
            yield other, one
