"""Signals that ask a run to end: the step is finished, a checkpoint is saved, and the process ends well.

Ranks hear of a signal at unlike moments, and must stop behind the same step. A rank that has heard writes the step
into the store of all ranks before it takes part in that step's norm; no rank gets beyond the norm before all have taken
part; and behind the step every rank looks whether this very step was named. So either all see it or none.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import torch.distributed as dist

from meshwright.program.program import Program
from meshwright.schedule.action import Action, Kind

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass
class Stopping:
    """What one rank has heard. ``step`` is the one under way."""

    store: dist.Store
    meeting: Kind
    asked: bool = False
    step: int = 0

    def hear(self, action: Action, word: str) -> None:
        """Told by the interpreter: before the action in which all ranks meet, the step is named if it was asked for."""
        if self.asked and word == "begin" and action.kind == self.meeting:
            self.store.set(self._key, "")

    def agreed(self) -> bool:
        """Whether all ranks stop behind this step."""
        return self.store.check([self._key])

    @property
    def _key(self) -> str:
        return f"stop behind {self.step}"


@contextmanager
def stopping(store: dist.Store, program: Program) -> Iterator[Stopping]:
    """Listens to signals from here on. A rank that its launcher forked hears its parent's SIGTERM alone."""
    met = (None, "NORM") in program.collectives
    heard = Stopping(store, "NORM" if met else "STEP")

    def hear(number: int, frame: FrameType | None) -> None:
        heard.asked = True

    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, hear)
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
