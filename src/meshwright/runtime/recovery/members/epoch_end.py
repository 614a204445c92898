"""Agree on the step behind which ranks stop, for a signal or for members that want to join; follow a step's phases."""

from collections.abc import Callable
from time import perf_counter

import torch.distributed as dist

from meshwright.program.program import Program
from meshwright.runtime.training.stop_signals import Stopping, new_stopping
from meshwright.schedules.action import Action


class MembershipChange(Exception):  # noqa: N818 - an event that all ranks have agreed on
    """All ranks end the epoch behind the same step: others join."""


class LostMemberError(RuntimeError):
    """The ranks of a step are not all there."""


class MemberStopping(Stopping):
    """The stop requests of a member: ``stop`` of the run, ``change`` of the epoch.

    ``begun_s`` is the begin of the step under way; ``between``: there is none. ``updating``: the optimizer has begun to
    change the states, and the rest of that is not done. ``broken``: a member was lost. ``apart``: the step meets no
    other island, so a loss among those need not end it. ``before`` is called at the begin of a step that meets others.
    """

    def __init__(self, stop: Stopping, store: dist.Store, program: Program, rank: int) -> None:
        super().__init__(stop.store, stop.meeting, stop.later)
        self.stop = stop
        self.change = new_stopping(dist.PrefixStore("change", store), program, rank)
        self.updating, self.begun_s, self._leaves = False, 0.0, False
        self.broken, self.apart, self.between = False, False, True
        self.meets: Callable[[int], bool] = lambda step: True
        self.before: Callable[[], None] = lambda: None

    def begin(self, step: int) -> None:
        """Begin a step. Raises MembershipChange if the epoch ends before it, RunError if it is broken."""
        if self._leaves:
            raise MembershipChange
        self.step, self.begun_s = step, perf_counter()
        self.apart = not self.meets(step)
        if not self.apart:
            if self.broken:
                raise LostMemberError("a member of another island was lost")
            self.before()
        self.between = False
        self.stop.begin(step)
        self.change.begin(step)

    def hear(self, action: Action, word: str) -> None:
        """Follow an action."""
        self.stop.hear(action, word)
        self.change.hear(action, word)
        if action.kind == "STEP" and word == "end":
            self.updating = False

    @property
    def leaves(self) -> bool:
        """True if all ranks end the epoch behind the last step."""
        return self._leaves

    def agreed(self) -> bool:
        """Return whether all ranks stop the run after this step."""
        self._leaves, self.between = self.change.agreed(), True
        return self.stop.agreed()
