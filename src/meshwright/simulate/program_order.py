"""The order of a Program's actions, messages, exchanges and barriers included.

A receive needs its send, a pass the sum over ranks that it is behind, and what follows a barrier all ranks that take
part. Since all ranks of a class do the same, a collective inside a class needs no partner to wait for.
"""

from collections import defaultdict
from collections.abc import Hashable

from meshwright.play.execution_order import NOTHING, Need, Step, execution_order
from meshwright.program.lowering.optimizer_post_validation import sender_of
from meshwright.program.pipeline_messages.all_rank_exchanges import awaited_sum, exchange_of, sender
from meshwright.program.program import Program, matching_receive
from meshwright.schedules.action import (
    BROADCASTS,
    PASS_KINDS,
    RECEIVES,
    SENDS,
    SUM_RECEIVES,
    SUM_SENDS,
    SUMS,
    Action,
    Kind,
)

BARRIERS: tuple[Kind, ...] = ("REDUCE_MIRRORED", "REDUCE_TIED")
Barrier = tuple[Kind, int | None]
"""A kind of barrier, and the place in a chain of the stages that it is for."""


def barriers_of(program: Program) -> tuple[Kind, ...]:
    """Return the kinds of actions at which ranks wait for each other."""
    return BARRIERS if program.steps_overlap else (*BARRIERS, "NORM")


def program_order(program: Program) -> list[Step]:
    """Return an order in which all actions of a Program can run."""
    return execution_order(program.lists, program.ways, ProgramNeeds(program))


class ProgramNeeds:
    """The needs of actions in the lists of a Program."""

    def __init__(self, program: Program) -> None:
        self._ways, self._ranks = program.ways, range(program.pipeline_ranks)
        self._placement = tuple(stage.rank for stage in program.stages)
        self._barriers, self._sums = barriers_of(program), bool(program.ways.barriers)
        self._members: dict[Barrier, list[int]] = defaultdict(list)
        for rank, actions in enumerate(program.lists):
            for action in actions:
                if action.kind in self._barriers:
                    self._members[self._barrier(action)].append(rank)
        self._behind: list[Barrier | None] = [None for _ in self._ranks]

    def need(self, action: Action, rank: int) -> Need:
        """Return the barrier that an action is behind, the sum that a pass waits for, or what sends it something."""
        if (barrier := self._behind[rank]) is not None:
            return barrier[0], (), barrier
        kind = action.kind
        if kind in PASS_KINDS:
            awaited = awaited_sum(action, self._ways) if self._sums else None
            return NOTHING if awaited is None else (awaited[0], (), awaited)
        if kind in RECEIVES:
            return None, (action,), None
        if kind in SUM_RECEIVES:
            return None, (sender_of(action, rank),), None
        if kind in BROADCASTS and sender(kind, self._placement) != rank:
            return None, (exchange_of(action),), None
        return NOTHING

    def met(self, action: Action, rank: int) -> tuple[Hashable, ...]:
        """Return the keys of all ranks' parts in the barrier or sum that an action needs."""
        if (barrier := self._behind[rank]) is not None:
            return tuple((barrier, member) for member in self._members[barrier])
        return tuple((awaited_sum(action, self._ways), member) for member in self._ranks)

    def key(self, action: Action, rank: int) -> Hashable:
        """Return the key of an action that runs now."""
        self._behind[rank] = None
        if action.kind in self._barriers:
            self._behind[rank] = barrier = self._barrier(action)
            return barrier, rank
        if action.kind in SENDS:
            return matching_receive(action)
        if action.kind in SUM_SENDS:
            return action.kind, rank
        if action.kind in SUMS:
            return exchange_of(action), rank
        if action.kind in BROADCASTS and sender(action.kind, self._placement) == rank:
            return exchange_of(action)
        return None

    def _barrier(self, action: Action) -> Barrier:
        return action.kind, None if action.stage is None else self._ways.position(action.stage)
