"""Inject faults into a rank of a run, to try their detection and the recovery from them.

``slow`` and ``link`` last from their step on, every other fault happens once. ``fired`` is called with the index of an
injection just before it happens first.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from errno import ENOSPC
from time import monotonic, sleep

import torch

from meshwright.runtime.faults.fault import FaultKind
from meshwright.runtime.faults.injection import Injection
from meshwright.runtime.faults.operation_history import Operation, OperationHistory
from meshwright.schedules.action import PASS_KINDS, Action

CORRUPTION = 1000.0
"""Factor of corrupted gradients; far beyond what a step changes, as a flipped bit of an exponent is."""
ASSUMED_LATENCY_S, ASSUMED_BYTES_PER_S = 1e-4, 1e9
"""A guess at a healthy link between two processes of a host, where none has been measured."""


@dataclass(frozen=True, slots=True)
class LinkRate:
    """Latency and bandwidth of a healthy link."""

    latency_s: float = ASSUMED_LATENCY_S
    bytes_per_s: float = ASSUMED_BYTES_PER_S

    def seconds(self, size: float) -> float:
        """Return the seconds that a message of so many bytes takes."""
        return self.latency_s + size / self.bytes_per_s


@dataclass
class InjectedFaults:
    """Injections of a run, as one rank executes them.

    ``rates`` are measured rates of links by (rank, peer), with the smaller rank first. ``slows``: this rank is to
    become slow.
    """

    injections: Sequence[Injection]
    rank: int
    fired: Callable[[int], None] = lambda index: None
    rates: dict[tuple[int, int], LinkRate] = field(default_factory=dict)
    step: int = -1
    slows: bool = field(init=False)
    history: OperationHistory = field(default_factory=OperationHistory)
    _told: set[int] = field(default_factory=set)
    _over: set[int] = field(default_factory=set)
    _pass: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        self.slows = any(one.kind == "slow" and one.rank == self.rank for one in self.injections)

    def delay_operations(self, history: OperationHistory) -> None:
        """Delay the operations that are recorded in ``history``, where a link is to be slow."""
        self.history = history
        if any(one.kind == "link" for one in self.injections):
            history.delay = self._delay

    def before_step(self, step: int, flip_bit: Callable[[], None]) -> None:
        """Begin a step: end this process, hang, or flip a bit of a parameter, if that is due."""
        self.step = step
        for _ in self._due("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        for _ in self._due("hang"):
            while True:
                sleep(3600)
        for _ in self._due("diverge"):
            flip_bit()

    def hear(self, action: Action, word: str) -> None:
        """Make passes take longer."""
        if action.kind not in PASS_KINDS or not any(self._lasting("slow")):
            return
        waited_s = self.history.waited_s
        if word == "begin":
            self._pass = monotonic(), waited_s
            return
        (began, before), now = self._pass, monotonic()
        for index, one in self._lasting("slow"):
            self._fire(index)
            sleep(max(0.0, (one.factor - 1) * (now - began - (waited_s - before))))

    def change_gradients(self, parts: Sequence[torch.Tensor]) -> None:
        """Corrupt this rank's gradients of a unit before they are exchanged."""
        for _ in self._due("corrupt", whole_step=True):
            for part in parts:
                part.mul_(CORRUPTION)
        for _ in self._due("nan", whole_step=True):
            next(part for part in parts if len(part))[0] = float("nan")

    def before_write(self, done: int) -> None:
        """Raise OSError for lack of space, if that is due, as the first write of a file would.

        The file is that of a checkpoint behind ``done`` steps.
        """
        for _ in self._due("full", behind=done - 1):
            raise OSError(ENOSPC, os.strerror(ENOSPC))

    def loss(self, step: int, loss: float) -> float:
        """Return the loss of a step as it is to be seen."""
        for index, one in enumerate(self.injections):
            if one.kind == "spike" and one.step == step and index not in self._over:
                self._over.add(index)
                if self.rank == 0:
                    self.fired(index)
                loss *= one.factor
        return loss

    def delay_link(self, ranks: Sequence[int], size: float) -> None:
        """Sleep as long as a slow link between two of ``ranks`` delays an operation of so many bytes."""
        for index, one in self._lasting("link", on_ranks=ranks):
            self._fire(index)
            pair = min(one.rank or 0, one.peer or 0), max(one.rank or 0, one.peer or 0)
            sleep((one.factor - 1) * self.rates.get(pair, LinkRate()).seconds(size))

    def _delay(self, operation: Operation) -> None:
        if operation.receives:
            self.delay_link(operation.ranks, operation.logical_bytes)

    def _lasting(
        self, kind: FaultKind, on_ranks: Sequence[int] | None = None
    ) -> Iterator[tuple[int, Injection]]:
        for index, one in enumerate(self.injections):
            if one.kind != kind or self.step < one.step:
                continue
            ends = (one.rank,) if on_ranks is None else (one.rank, one.peer)
            if self.rank in ends and (on_ranks is None or {one.rank, one.peer} <= set(on_ranks)):
                yield index, one

    def _due(
        self, kind: FaultKind, *, whole_step: bool = False, behind: int | None = None
    ) -> Iterator[Injection]:
        """Yield this rank's injections that happen now.

        ``whole_step``: several times in their step; ``behind``: in their step or later, behind this one.
        """
        for index, one in enumerate(self.injections):
            now = one.step == self.step if behind is None else one.step <= behind
            if one.kind == kind and one.rank == self.rank and now and index not in self._over:
                self._fire(index)
                if not whole_step:
                    self._over.add(index)
                yield one

    def _fire(self, index: int) -> None:
        if index not in self._told:
            self._told.add(index)
            self.fired(index)
