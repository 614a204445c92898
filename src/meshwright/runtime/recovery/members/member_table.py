"""The members of a run: which go on, which have reported, which were lost."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.recovery.members.membership import Candidate, Place

Result = tuple[int, float, float, float]
"""A step's number, loss, gradient norm and seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A member's message at the end of an epoch.

    ``step`` is the number of steps of its states, None if they are not whole. ``error`` is empty if all agreed on the
    end; ``lost_messages``: it may come from a lost rank. ``faults`` are those that ended the epoch, as JSON-ready data.
    """

    step: int | None
    error: str = ""
    lost_messages: bool = True
    faults: tuple[Mapping[str, Any], ...] = ()
    result: Result | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Report":
        """Return the report that a member has sent."""
        lists = {name: tuple(data[name]) for name in ("faults", "result") if data.get(name) is not None}
        return cls(**{**data, **lists})


@dataclass
class Member:
    """A process of a run. ``command`` is the connection of the command that began it, 0 for the first one.

    ``rank`` is None until it has one. ``lost`` says how it was lost. ``order`` is what it does in the epoch.
    """

    number: int
    command: int
    place: Place
    rank: int | None = None
    report: Report | None = None
    lost: str = ""
    fault: Fault | None = None
    done: bool = False
    released: bool = False
    order: Mapping[str, Any] | None = None

    @property
    def goes_on(self) -> bool:
        """True unless the member is lost, done or released."""
        return not (self.lost or self.done or self.released)

    @property
    def candidate(self) -> Candidate:
        """The member as one that could go on."""
        step = None if self.report is None else self.report.step
        return Candidate(member=self.number, place=self.place, step=step)

    def take(self, place: Place, order: Mapping[str, Any]) -> None:
        """Begin an epoch at a place."""
        self.place, self.order, self.rank, self.report = place, order, int(order["rank"]), None

    def leave(self) -> None:
        """Have no part in the next epochs."""
        self.released, self.rank = not self.done, None


@dataclass
class MemberTable:
    """All members that a run has had, by number; ``size`` is the number of ranks of a replica."""

    size: int
    every: dict[int, Member] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self.every.values()))

    def __getitem__(self, number: int) -> Member:
        return self.every[number]

    def add(self, replicas: int, command: int) -> list[int]:
        """Add complete replicas that a command begins, and return their members."""
        first = 1 + max(self.every)
        replica = 1 + max(one.place.replica for one in self)
        found = list(range(first, first + replicas * self.size))
        for at, number in enumerate(found):
            self.every[number] = Member(number, command, Place(replica + at // self.size, at % self.size))
        return found

    @property
    def current(self) -> list[Member]:
        """The members of this epoch at work; before the first epoch, the initial ones."""
        return [one for one in self if one.goes_on and one.rank is not None]

    @property
    def lost(self) -> list[Member]:
        """The members of this epoch that were lost."""
        return [one for one in self if one.lost and one.rank is not None]

    @property
    def joining(self) -> list[Member]:
        """The members of commands that want to join, where all of a command wait."""
        new = [one for one in self if one.goes_on and one.rank is None]
        late = {one.command for one in new if one.report is None}
        return [one for one in new if one.command not in late]

    @property
    def replicas(self) -> int:
        """The number of replicas at work or about to join."""
        return len({one.place.replica for one in self if one.goes_on})
