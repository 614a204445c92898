"""Answer the requests of members and commands over their connections, and miss the heartbeats of commands."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.recovery.members.epochs import Epochs
from meshwright.runtime.recovery.members.member_table import Report

BEAT_S, LOST_S = 2.0, 6.0
"""Seconds between two heartbeats of a command, and of silence after which its ranks count as lost."""
GONE = "its connection to the run's first command has closed"
Request = Mapping[str, Any]


@dataclass
class MemberRequests:
    """The service of the first command. ``facts`` are what those who join must have alike."""

    epochs: Epochs
    facts: Mapping[str, object]
    _beats: dict[int, float] = field(default_factory=dict)
    _member_of: dict[int, int] = field(default_factory=dict)

    def answer(self, request: Request, connection: int) -> object:
        """Return the answer to a request; None for an unknown one."""
        found = REQUESTS.get(str(request["op"]))
        try:
            return None if found is None else found(self, request, connection)
        except Exception as error:  # in a thread of the connection, where nobody else would see it
            self.epochs.fail(f"{type(error).__name__} in the answer to {request['op']}: {error}")
            return {"failed": self.epochs.failure}

    def closed(self, connection: int) -> None:
        """Count the members of a closed connection as lost; how local ranks have ended, their parent sees."""
        self._beats.pop(connection, None)
        own = self._member_of.pop(connection, None)
        gone = [
            one.number
            for one in self.epochs.members
            if one.command and (one.number == own or one.command == connection)
        ]
        self.epochs.lose(gone, GONE)

    def tick(self) -> None:
        """Count the members of silent commands as lost."""
        now = monotonic()
        for connection, beat_s in list(self._beats.items()):
            if now - beat_s > LOST_S:
                del self._beats[connection]
                silent = [one.number for one in self.epochs.members if one.command == connection]
                self.epochs.lose(silent, f"no heartbeat of its command for {now - beat_s:.1f} s")
        self.epochs.tick()

    def to_end(self, command: int) -> list[int]:
        """Return the members of a command whose processes shall end: they hang, or were taken out."""
        return [one.number for one in self.epochs.members if one.command == command and one.lost]

    def next(self, request: Request, connection: int) -> object:
        """Let a member wait for the next epoch."""
        number = self._member_of[connection] = int(request["member"])
        return self.epochs.next(number, Report.from_json(request["report"]))

    def enter(self, request: Request, connection: int) -> object:
        """Let a command begin members."""
        self._beats[connection] = monotonic()
        return self.epochs.enter(int(request["replicas"]), connection)

    def beat(self, request: Request, connection: int) -> object:
        """Hear a heartbeat."""
        if connection in self._beats:
            self._beats[connection] = monotonic()
        return {"end": self.to_end(connection), "failed": self.epochs.failure}

    def lost(self, request: Request, connection: int) -> None:
        """Hear that a command has lost a member."""
        fault = Fault(**request["fault"])
        self.epochs.lose([int(request["member"])], fault.evidence, fault)


REQUESTS: Mapping[str, Callable[[MemberRequests, Request, int], object]] = {
    "next": MemberRequests.next,
    "enter": MemberRequests.enter,
    "beat": MemberRequests.beat,
    "lost": MemberRequests.lost,
    "watch": lambda self, of, connection: self.epochs.watch(int(of["epoch"]), known=bool(of["known"])),
    "done": lambda self, of, connection: self.epochs.done(int(of["member"]), of["summary"]),
    "stepped": lambda self, of, connection: self.epochs.record.stepped(int(of["step"])),
    "warned": lambda self, of, connection: self.epochs.record.warn(Fault(**of["fault"])),
    "facts": lambda self, of, connection: self.facts,
}
