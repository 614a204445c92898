"""The progress of all local ranks in shared memory: what each does, and since when.

Ranks write, their parent reads, also after a rank has died or hangs. A row is written without a lock: a reader that
meets a row amid its change sees a few wrong characters at most, and looks again.
"""

import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from time import time

from meshwright.runtime.faults.injection import MOST

PROGRESS = struct.Struct("<qqd?95s")
"""Step, sequence number of the operation, seconds since 1970, waiting, text."""
FIRED = struct.Struct(f"<d{MOST}s")
"""Seconds since 1970 of the last injection, and a byte for each injection, set when it happened."""
ROW = PROGRESS.size + FIRED.size
NOT_BEGUN = -1
"""The step of a rank that has not begun any."""


@dataclass(frozen=True, slots=True)
class StepTaken:
    """The message of a rank to its parent at the end of its first step."""

    step: int


@dataclass(frozen=True, slots=True)
class Progress:
    """A rank's step, its operations so far, and what it does since ``since_s`` (seconds since 1970).

    ``waiting``: it waits for other ranks. ``injected_s`` is when it was last injected a fault, 0 for never.
    """

    step: int
    sequence: int
    since_s: float
    waiting: bool
    doing: str
    injected_s: float
    fired: frozenset[int]


class ProgressRow:
    """One rank's row; only this rank writes it."""

    def __init__(self, memory: mmap.mmap, rank: int) -> None:
        self._memory, self._at = memory, ROW * rank
        self._step, self._fired = NOT_BEGUN, bytearray(MOST)

    def begin_step(self, step: int) -> None:
        """Begin a step."""
        self._step = step
        self.note(0, "the begin of the step", waiting=False)

    def note(self, sequence: int, doing: str, *, waiting: bool) -> None:
        """Write what the rank does from now on."""
        text = doing.encode(errors="replace")[:95]
        PROGRESS.pack_into(self._memory, self._at, self._step, sequence, time(), waiting, text)

    def fire(self, number: int) -> None:
        """Write that an injection happens now, given by its place among those of the command."""
        self._fired[number] = 1
        FIRED.pack_into(self._memory, self._at + PROGRESS.size, time(), bytes(self._fired))


class ProgressBoard:
    """The rows of all ranks; made before they are forked."""

    def __init__(self, ranks: int) -> None:
        self._memory, self.ranks = mmap.mmap(-1, ROW * ranks), ranks
        for rank in range(ranks):
            PROGRESS.pack_into(self._memory, ROW * rank, NOT_BEGUN, 0, time(), False, b"")

    def row(self, rank: int) -> ProgressRow:
        """Return a rank's row to write."""
        return ProgressRow(self._memory, rank)

    def progress(self, rank: int) -> Progress:
        """Return what a rank has written."""
        step, sequence, since_s, waiting, doing = PROGRESS.unpack_from(self._memory, ROW * rank)
        injected_s, fired = FIRED.unpack_from(self._memory, ROW * rank + PROGRESS.size)
        text = doing.rstrip(b"\0").decode(errors="replace")
        happened = frozenset(number for number, byte in enumerate(fired) if byte)
        return Progress(step, sequence, since_s, waiting, text, injected_s, happened)

    def fired(self) -> frozenset[int]:
        """Return the injections that have happened on any rank."""
        return frozenset().union(*(row.fired for row in self.rows()))

    def rows(self) -> list[Progress]:
        """Return what all ranks have written."""
        return [self.progress(rank) for rank in range(self.ranks)]


def hanging_ranks(rows: Sequence[Progress], ended: frozenset[int], now_s: float, hang_s: float) -> list[int]:
    """Return the ranks that keep all others waiting for ``hang_s`` seconds; none while any rank makes progress.

    Of ranks that have not ``ended`` these are the ones that wait for nobody; if all wait, the ones that are behind.
    """
    running = [rank for rank in range(len(rows)) if rank not in ended]
    if not running or any(_advances(rows[rank], now_s, hang_s) for rank in running):
        return []
    busy = [rank for rank in running if not rows[rank].waiting]
    if busy:
        return busy
    last = min(rows[rank].step for rank in running)
    behind = [rank for rank in running if rows[rank].step == last]
    return behind if len(behind) < len(running) else [min(running, key=lambda rank: rows[rank].since_s)]


def _advances(row: Progress, now_s: float, hang_s: float) -> bool:
    return row.step == NOT_BEGUN or now_s - row.since_s < hang_s
