"""Record the last collectives and messages of a rank, and how long it waited for them.

Each collective (kind, what it moves, axes) has a ring of its own, so that frequent ones do not push out rare ones; so
have the messages from and to each rank. Seconds are those of ``time.monotonic``. On an accelerator an operation is only
queued by the host, and the seconds that the host waits for it say little.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from math import inf
from time import monotonic
from typing import Any, Protocol

KEPT = 64
"""Operations of a ring: those of the last few steps, which is what a fault can have reached."""
Key = tuple[str, ...]


class Progress(Protocol):
    """Callback that receives an operation's sequence number and name, and whether the rank waits for it now."""

    def __call__(self, sequence: int, doing: str, *, waiting: bool) -> None:
        """Take the progress."""


def _no_progress(sequence: int, doing: str, *, waiting: bool) -> None:
    """Tell nobody."""


@dataclass(slots=True)
class Operation:
    """A collective or message. ``end_s`` is None until it has ended, ``waited_s`` is how long the rank waited for it.

    ``sequence`` counts the operations of a rank from 0; ``ranks`` are those that take part. ``receives`` is false for
    messages that this rank sends. ``aside``: it runs concurrently, in a thread of its own.
    """

    sequence: int
    what: str
    logical_bytes: float
    ranks: tuple[int, ...]
    start_s: float
    receives: bool = True
    aside: bool = False
    end_s: float | None = None
    waited_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the operation as JSON-ready data."""
        names = ("sequence", "what", "logical_bytes", "ranks", "start_s", "end_s", "waited_s")
        return {name: getattr(self, name) for name in names}


@dataclass
class OperationHistory:
    """The last operations of a rank by collective.

    ``waited_s`` are all seconds that the rank has waited for operations, but for those that run aside in threads of
    their own; ``least_s`` is the shortest wait for an operation among the same ranks since it was last cleared, but for
    messages that this rank sent. ``on_progress`` is called when an operation begins, before and after the rank waits
    for it. ``delay`` is called behind the wait, for an injected slow link to sleep.
    """

    on_progress: Progress = _no_progress
    delay: Callable[[Operation], None] | None = None
    waited_s: float = 0.0
    least_s: dict[tuple[int, ...], float] = field(default_factory=dict)
    rings: dict[Key, deque[Operation]] = field(default_factory=dict)
    _numbers: "count[int]" = field(default_factory=count)

    def begin(
        self,
        key: Key,
        what: str,
        logical_bytes: float,
        ranks: tuple[int, ...],
        *,
        receives: bool = True,
        aside: bool = False,
    ) -> Operation:
        """Record that an operation begins."""
        operation = Operation(next(self._numbers), what, logical_bytes, ranks, monotonic(), receives, aside)
        ring = self.rings.get(key)
        if ring is None:
            ring = self.rings[key] = deque(maxlen=KEPT)
        ring.append(operation)
        self.on_progress(operation.sequence, what, waiting=False)
        return operation

    def wait(self, operation: Operation, wait: Callable[[], object]) -> None:
        """Call ``wait``, which returns when an operation has ended, and record how long that took."""
        self.on_progress(operation.sequence, operation.what, waiting=True)
        began = monotonic()
        wait()
        if self.delay is not None:
            self.delay(operation)
        operation.end_s = ended = monotonic()
        waited_s = ended - began
        operation.waited_s += waited_s
        if not operation.aside:
            self.waited_s += waited_s
            if operation.receives and waited_s < self.least_s.get(operation.ranks, inf):
                self.least_s[operation.ranks] = waited_s
        self.on_progress(operation.sequence, operation.what, waiting=False)

    def to_json(self) -> list[dict[str, Any]]:
        """Return all rings as JSON-ready data."""
        rings = list(self.rings.items())
        return [
            {"collective": list(key), "operations": [one.to_json() for one in list(ring)]}
            for key, ring in rings
        ]
