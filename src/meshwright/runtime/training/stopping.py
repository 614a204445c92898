"""Signals that ask a run to end: the step is finished, a checkpoint is saved, and the process ends well.

Ranks hear of a signal at unlike moments, and must stop behind the same step. A rank that has heard writes the step
into the store of all ranks before it takes part in that step's norm; no rank gets beyond the norm before all have taken
part; and behind the step every rank looks whether this very step was named. So either all see it or none. Where steps
are validated afterwards the sums of all ranks come one step later, and every rank looks whether the step before was
named.
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

import torch.distributed as dist

from meshwright.program.program import Program
from meshwright.schedule.action import Action, Kind

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""A terminal that is gone (SIGHUP) asks for an end as well; ``nohup`` has it ignored."""
ACKNOWLEDGED = "Stopping: the step under way is finished and a checkpoint saved"


def heeded() -> tuple[signal.Signals, ...]:
    """The signals that whoever started this process has not told it to ignore."""
    return tuple(number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN)


def acknowledge(more: str = "") -> None:
    """Tell people at once that a signal was heard. Only the system is asked: a signal may come amid any output."""
    with suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), f"\n{ACKNOWLEDGED}{more}.\n".encode())


@dataclass
class Stopping:
    """What one rank has heard. ``step`` is the one under way; all have met for a step when ``later`` more are done."""

    store: dist.Store
    meeting: Kind
    later: int = 0
    asked: bool = False
    step: int = 0

    def hear(self, action: Action, word: str) -> None:
        """Told by the interpreter: before the action in which all ranks meet, the step is named if it was asked for."""
        if self.asked and word == "begin" and action.kind == self.meeting:
            self.store.set(_key(self.step), "")

    def agreed(self) -> bool:
        """Whether all ranks stop behind this step."""
        return self.store.check([_key(self.step - self.later)])


def _key(step: int) -> str:
    return f"stop behind {step}"


@contextmanager
def stopping(
    store: dist.Store, program: Program, *, told: bool, early: Sequence[int] = ()
) -> Iterator[Stopping]:
    """Listens to signals from here on. A rank that its launcher forked hears its parent's SIGTERM alone.

    ``told``: people are told of the first one. ``early`` are signals that were heard before.
    """
    met = program.steps_overlap or (None, "NORM") in program.collectives
    heard = Stopping(store, "NORM" if met else "STEP", int(program.steps_overlap))

    def hear(number: int, frame: FrameType | None) -> None:
        if told and not heard.asked:
            acknowledge()
        heard.asked = True

    before = {number: signal.signal(number, hear) for number in heeded()}
    heard.asked = heard.asked or bool(early)
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
