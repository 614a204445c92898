"""Wait for operations so that a wait that will never end can be given up.

If a write to a lost rank fails before gloo's loop has seen the end of the connection, gloo (torch 2.13) records the
error, but leaves the operation waiting until its time-out. So another thread waits, and this one looks at times whether
the epoch is broken. A thread that is given up keeps its operation, and the process groups must be kept with it: to
destroy them would wait for the operation.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread, local

from meshwright.runtime.comm.communicator import Work
from meshwright.runtime.recovery.members.epoch_end import LostMemberError

GRACE_S = 0.5
"""Seconds that operations have to end by themselves in a broken epoch."""


class _Waiter:
    """A thread that waits for one operation after the other for another thread."""

    def __init__(self) -> None:
        self.asked: SimpleQueue[Work | None] = SimpleQueue()
        self.ended: SimpleQueue[BaseException | None] = SimpleQueue()
        Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while (work := self.asked.get()) is not None:
            try:
                work.wait()
            except BaseException as error:
                self.ended.put(error)
            else:
                self.ended.put(None)
            del work


@dataclass
class InterruptibleWait:
    """Waits of a rank's threads; ``broken`` tells whether the epoch is. ``given_up``: a wait was."""

    broken: Callable[[], bool]
    given_up: bool = False
    _of_thread: local = field(default_factory=local)
    _waiters: list[_Waiter] = field(default_factory=list)

    def wait(self, work: Work) -> None:
        """Return when an operation has ended. Raises its error, or LostMemberError where it is given up."""
        waiter = self._waiter()
        waiter.asked.put(work)
        broken = False
        while True:
            try:
                error = waiter.ended.get(timeout=GRACE_S)
                break
            except Empty:
                if broken:
                    self.given_up = True
                    raise LostMemberError("an operation with a lost rank does not end") from None
                broken = self.broken()
        if error is not None:
            raise error

    def end(self) -> None:
        """Let the waiting threads end."""
        for waiter in self._waiters:
            waiter.asked.put(None)

    def _waiter(self) -> _Waiter:
        """Return the waiter of this thread."""
        found: _Waiter | None = getattr(self._of_thread, "waiter", None)
        if found is None:
            found = self._of_thread.waiter = _Waiter()
            self._waiters.append(found)
        return found
