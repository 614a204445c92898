"""A fault of a run: its kind, the rank or link at fault, and what was done about it.

=========  =======================================================  ==================
kind       what it is                                               answered by
=========  =======================================================  ==================
kill       a rank's process has died                                the policy
hang       a rank makes no progress, and others wait for it         the policy
nan        a rank's own gradient is not finite                      the policy
corrupt    a rank's own gradient is far from its usual size         the policy
diverge    copies of a state differ between ranks                   the policy
full       a rank cannot write a checkpoint for lack of space       the policy
slow       a rank computes far slower than before and its peers     a report
link       messages between two ranks take far longer than others   a report
spike      the loss of a step is far above that of the steps before  a report
=========  =======================================================  ==================
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from meshwright.errors import RunError

FaultKind = Literal["kill", "hang", "slow", "link", "corrupt", "nan", "diverge", "full", "spike"]
Action = Literal["stopped", "restarted", "replanned", "shrunk", "reported"]
KINDS: tuple[FaultKind, ...] = (
    "kill",
    "hang",
    "slow",
    "link",
    "corrupt",
    "nan",
    "diverge",
    "full",
    "spike",
)
WARNINGS: frozenset[FaultKind] = frozenset({"slow", "link", "spike"})
"""Kinds that are reported under every policy; the run goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A detected fault. ``step`` is the first step that it affected, counted from 0.

    ``rank`` is None for a spike of the loss, ``peer`` is the other end of a slow link. ``evidence`` is a sentence with
    figures. ``detected_s`` are the seconds from its onset (the injection, else the last sign of life) to its name,
    ``resumed_s`` those from there to the end of the first new step; None if there was none.
    """

    kind: FaultKind
    rank: int | None
    step: int
    evidence: str
    peer: int | None = None
    detected_s: float | None = None
    resumed_s: float | None = None
    action: Action = "reported"

    def to_json(self) -> dict[str, Any]:
        """Return the fault as JSON-ready data."""
        return asdict(self)

    def __str__(self) -> str:
        where = "" if self.rank is None else f" of rank {self.rank}"
        where = f" between ranks {self.rank} and {self.peer}" if self.peer is not None else where
        return f"{self.kind}{where} at step {self.step}: {self.evidence}"


class FaultError(RunError):
    """A rank ends its part of the run because of ``faults``, which it or its peers are at fault of."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: Sequence[Fault] = tuple(faults)
        super().__init__("; ".join(map(str, self.faults)))
