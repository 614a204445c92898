"""Watch the ranks that a command has begun: their ends, deaths and hangs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.connection import Connection
from time import time
from typing import Any

from meshwright.errors import InputError
from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.launch.forked_ranks import Rank, deaths, heard
from meshwright.runtime.recovery.named_faults import hang_faults, kill_faults
from meshwright.runtime.recovery.progress_board import ProgressBoard, hanging_ranks

GLANCE_S = 0.1
"""Seconds between two looks at ranks that say nothing."""


@dataclass
class LocalMembers:
    """Ranks of this command, numbered as it began them. ``summary`` is that of a rank that is done.

    A rank hangs that does something itself for ``hang_s`` seconds; one that waits may wait for a rank elsewhere.
    """

    ranks: Sequence[Rank]
    board: ProgressBoard
    hang_s: float
    summary: Mapping[str, Any] = field(default_factory=dict)
    working: dict[Connection, Rank] = field(init=False)

    def __post_init__(self) -> None:
        self.working = {rank.pipe: rank for rank in self.ranks}

    def losses(self) -> Iterator[tuple[int, Fault]]:
        """Wait a moment, and yield the ranks that were lost since. Raises InputError of a rank."""
        for pipe in connection.wait(list(self.working), timeout=GLANCE_S):
            assert isinstance(pipe, Connection)
            rank = self.working[pipe]
            word, content = heard(rank)
            if word in ("done", "failed", "refused", "faults"):
                del self.working[pipe]
            if word == "done":
                self.summary = self.summary or dict(content)
            elif word == "refused":
                raise InputError(content)
            elif word == "failed":
                yield rank.number, self._killed(rank, str(content))
        yield from self._hanging()

    def end(self, number: int) -> None:
        """End a rank's process."""
        self.ranks[number].process.kill()

    def _killed(self, rank: Rank, text: str) -> Fault:
        how = deaths([rank]).get(rank.number, text).replace(f"rank {rank.number} ", "its process ", 1)
        return kill_faults(self.board.rows(), {rank.number: how}, time())[0]

    def _hanging(self) -> Iterator[tuple[int, Fault]]:
        rows, at_work = self.board.rows(), {rank.number for rank in self.working.values()}
        ended = frozenset(range(len(rows))) - at_work
        found = [one for one in hanging_ranks(rows, ended, time(), self.hang_s) if not rows[one].waiting]
        if len(found) == len(at_work) > 1:  # whose fault it is cannot be seen
            return
        yield from zip(found, hang_faults(rows, found, time()), strict=True)
