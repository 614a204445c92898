"""End a run on a signal: finish the step, save a checkpoint, exit normally.

Ranks receive a signal at different moments, and must stop after the same step. A rank that has received it writes the
step into the shared store before it takes part in that step's norm; no rank gets past the norm before all have taken
part; and after the step every rank checks whether this very step was written. So either all see it or none. If steps
are validated afterwards, the sums of all ranks arrive one step later, and every rank checks the previous step.
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType

import torch.distributed as dist

from meshwright.program.program import Program
from meshwright.schedules.action import Action, Kind

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Handled signals; a closed terminal (SIGHUP) also ends the run, unless ``nohup`` ignores it."""
ACKNOWLEDGED = "Stopping: the step under way is finished and a checkpoint saved"


def handled_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that this process was not started to ignore."""
    return tuple(number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN)


def acknowledge(more: str = "") -> None:
    """Print that a signal was received, by a system call alone: a signal may interrupt any output."""
    with suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), f"\n{ACKNOWLEDGED}{more}.\n".encode())


@dataclass
class Stopping:
    """The stop request of one rank. ``step`` is the current one; ranks meet for a step ``later`` steps after it.

    ``wishes`` are names of other things that all ranks are to do behind a step, agreed in the same way.
    """

    store: dist.Store
    meeting: Kind
    later: int = 0
    requested: bool = False
    step: int = 0
    wishes: set[str] = field(default_factory=set)
    _something: bool = False

    def begin(self, step: int) -> None:
        """Begin a step."""
        self.step = step

    def hear(self, action: Action, word: str) -> None:
        """Write the step into the store before the action in which all ranks meet, if anything was requested."""
        if word != "begin" or action.kind != self.meeting:
            return
        if asked := [*self.wishes, *([STOP] if self.requested else [])]:
            for what in (*asked, SOMETHING):  # in this order, so that SOMETHING never comes alone
                self.store.set(_key(what, self.step), "")

    def agreed(self) -> bool:
        """Return whether all ranks stop after this step."""
        self._something = self.store.check([_key(SOMETHING, self.step - self.later)])
        return self.also_agreed(STOP)

    def also_agreed(self, wish: str) -> bool:
        """Return whether all ranks do what was wished behind this step; ``agreed`` must have been called for it."""
        return self._something and self.store.check([_key(wish, self.step - self.later)])


STOP, SOMETHING = "stop", "anything"


def _key(what: str, step: int) -> str:
    return f"{what} behind {step}"


REQUESTED, PROPOSED, FINAL = "stop requested", "last step proposed", "last step"


@dataclass
class IslandStopping(Stopping):
    """The stop request of a rank whose island meets others only in exchanges, some steps ahead of them or behind.

    A rank writes the next step into the store, and then looks for a last step. Rank 0 proposes the latest step that is
    written, and again until no rank has written a later one meanwhile; a rank that finds a proposal waits for the
    final one. So no rank has begun a step behind the last, and nobody waits for ranks that are in an exchange.
    """

    rank: int = 0
    ranks: int = 1

    def begin(self, step: int) -> None:
        """Write the step that this rank takes."""
        self.step = step
        self._write(step)

    def hear(self, action: Action, word: str) -> None:
        """Do nothing: no action joins all ranks."""

    def also_agreed(self, wish: str) -> bool:
        """Return False: islands agree on nothing else."""
        return False

    def agreed(self) -> bool:
        """Return whether all ranks stop after this step."""
        self._write(self.step + 1)
        if self.requested:
            self.store.set(REQUESTED, "")
        if self.rank == 0 and self.store.check([REQUESTED]) and not self.store.check([FINAL]):
            self._decide()
        return self.store.check([PROPOSED]) and self.step >= int(self.store.get(FINAL))

    def _decide(self) -> None:
        last = -1
        while (latest := max(int(self.store.get(_step_of(rank))) for rank in range(self.ranks))) != last:
            last = latest
            self.store.set(PROPOSED, str(last))
        self.store.set(FINAL, str(last))

    def _write(self, step: int) -> None:
        self.store.set(_step_of(self.rank), str(step))


def _step_of(rank: int) -> str:
    return f"step of rank {rank}"


def new_stopping(store: dist.Store, program: Program, rank: int) -> Stopping:
    """Return the stop request of a rank, by the action in which all ranks of a Program meet."""
    if program.loose:
        return IslandStopping(store, "NORM", rank=rank, ranks=program.parts.ranks)
    met = program.steps_overlap or (None, "NORM") in program.collectives
    meeting: Kind = "NORM" if met else "STEP"
    return Stopping(store, meeting, int(program.steps_overlap))


@contextmanager
def stopping(
    store: dist.Store, program: Program, rank: int = 0, *, announce: bool, early: Sequence[int] = ()
) -> Iterator[Stopping]:
    """Handle signals inside the block. A forked rank receives only its parent's SIGTERM.

    ``announce``: print a message for the first signal. ``early`` are signals received before.
    """
    heard = new_stopping(store, program, rank)

    def hear(number: int, frame: FrameType | None) -> None:
        if announce and not heard.requested:
            acknowledge()
        heard.requested = True

    before = {number: signal.signal(number, hear) for number in handled_signals()}
    heard.requested = heard.requested or bool(early)
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
