"""Number the epochs of a run's membership: agree who goes on, as which rank, and with whose states.

An epoch is a span of steps with the same ranks. It ends if a member is lost, or behind a step on which all agree
because others want to join. Members report their states then and wait; as soon as every member has reported or is
lost, the next epoch begins. Islands meet others only in exchanges: they report when they come to one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Condition
from time import monotonic
from typing import Any

from meshwright.errors import MeshwrightError
from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.recovery.members.epoch_ranks import Replicas, orders_of
from meshwright.runtime.recovery.members.member_changes import MemberChanges
from meshwright.runtime.recovery.members.member_table import Member, MemberTable, Report
from meshwright.runtime.recovery.members.membership import (
    Candidate,
    Source,
    complete_replicas,
    places_of,
    source_of,
    up_to_date,
)
from meshwright.runtime.recovery.members.rendezvous_server import KeyValues
from meshwright.runtime.training.job_and_outcome import Training

NAMING_S = 8.0
"""Seconds in which a loss must be seen that has broken the connections of others: more than heartbeats may be late."""
ONLY_COPY = "no complete replica is left: the lost ranks held the only copy of a state"


@dataclass
class Epochs:
    """The epochs of a run. ``training_of`` has the plan of a number of replicas.

    ``limit_s`` is how long a member may take to report, ``fired`` tells the injections that have happened. ``summary``
    is that of the run's first rank at its end, ``failure`` why there is none.
    """

    values: KeyValues
    training_of: Callable[[int], Training]
    replicas: int
    record: MemberChanges
    limit_s: float = 300.0
    fired: Callable[[], Iterable[int]] = tuple
    epoch: int = 0
    summary: Mapping[str, Any] | None = None
    failure: str = ""
    members: MemberTable = field(init=False)

    def __post_init__(self) -> None:
        program = self.training_of(self.replicas).job.program
        self._islands = bool(program.loose)
        self.members = MemberTable(program.parts.ranks // self.replicas)
        for number, place in enumerate(places_of(program)):
            self.members.every[number] = Member(number, 0, place, rank=number)
        self._changed = Condition()
        self._broken_s: float | None = None

    # -- what members tell --------------------------------------------------------------------------------------

    def next(self, number: int, report: Report) -> Mapping[str, Any]:
        """Return what a member does in the next epoch, as soon as that begins."""
        with self._changed:
            member = self.members[number]
            member.report, member.order = report, None
            if report.error:
                self._break()
                if not report.lost_messages and not report.faults:
                    self.fail(report.error)
            self._take_out(report.faults)
            self._decide()
            self._changed.wait_for(lambda: member.order or not member.goes_on or self.failure)
            if self.failure:
                return {"failed": self.failure}
            return member.order or {"released": member.lost or "no place is left for it"}

    def watch(self, epoch: int, *, known: bool) -> str:
        """Return how an epoch changes: others want to join (unless that is ``known``), it is broken or over."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self.epoch != epoch
                    or self._broken_s is not None
                    or self.failure
                    or (not known and self.members.joining)
                )
            )
            if self.epoch != epoch:
                return "over"
            return "broken" if self._broken_s is not None or self.failure else "pending"

    def done(self, number: int, summary: Mapping[str, Any]) -> None:
        """Note that a member is done."""
        with self._changed:
            member = self.members[number]
            member.done = True
            if member.rank == 0 or self.summary is None:
                self.summary = summary
            self._decide()

    def enter(self, replicas: int, command: int) -> Mapping[str, Any]:
        """Return the members that a command may begin so that the run has ``replicas``; or why it may not."""
        with self._changed:
            there = self.members.replicas
            if replicas <= there:
                return {"refused": f"the run has {there} replicas, the plan has {replicas}"}
            return {"members": self.members.add(replicas - there, command)}

    def lose(self, numbers: Iterable[int], how: str, fault: Fault | None = None) -> None:
        """Count members as lost, in the way that a sentence or a fault says; its rank is that of the member."""
        with self._changed:
            for member in map(self.members.__getitem__, numbers):
                if member.goes_on:
                    member.lost = how
                    member.fault = fault and replace(fault, rank=member.rank)
                    if member.rank is not None:
                        self._break()
            self._decide()

    def tick(self) -> None:
        """Give up members that do not report, and a run whose connections broke although no member was lost."""
        with self._changed:
            if self._broken_s is None:
                return
            waited, late = (
                monotonic() - self._broken_s,
                [one for one in self.members.current if not one.report],
            )
            if late and waited > self.limit_s:
                self.lose([one.number for one in late], f"it did not answer within {self.limit_s:.0f} s")
            elif not late and waited > NAMING_S and not self.members.lost:
                errors = (one.report.error for one in self.members.current if one.report)
                self.fail(next(filter(None, errors), "the epoch ended without a reason"))

    def fail(self, text: str) -> None:
        """End the run with an error."""
        with self._changed:
            self.failure = self.failure or text
            self._changed.notify_all()

    @property
    def over(self) -> bool:
        """True if all members are lost or at their end."""
        with self._changed:
            return bool(self.failure) or not any(one.goes_on for one in self.members)

    # -- decisions ----------------------------------------------------------------------------------------------

    def _break(self) -> None:
        """End the epoch: what its ranks wait for will not come."""
        if self._broken_s is None:
            self._broken_s = monotonic()
            if not self._islands:
                self.values.end(_prefix(self.epoch))
        self._changed.notify_all()

    def _take_out(self, faults: Iterable[Mapping[str, Any]]) -> None:
        """Count the ranks at fault as lost."""
        for fault in (Fault(**data) for data in faults):
            self.lose(
                [one.number for one in self.members.current if one.rank == fault.rank], str(fault), fault
            )

    def _decide(self) -> None:
        """Begin the next epoch if every member of this one has reported or is lost."""
        self._changed.notify_all()
        current = self.members.current
        if self.failure or any(one.report is None for one in current):
            return
        if any(one.done for one in self.members):
            for one in current:
                one.order, one.done = {"finished": True}, True
        elif self._broken_s is None or self.members.lost:  # else whose loss it was is still to be seen
            self._begin([*current, *self.members.joining])

    def _begin(self, members: Sequence[Member]) -> None:
        """Begin the next epoch with as many complete replicas as a legal plan can have."""
        found = complete_replicas(
            [one.candidate for one in members], self.members.size, islands=self._islands
        )
        training = self._training_of_most(len(found))
        if training is None:
            return
        program = training.job.program
        count = program.parts.ranks // self.members.size
        if count < len(found):
            self.record.say(
                f"{len(found) - count} complete replicas are idle: the batch cannot be cut for more."
            )
        found.sort(key=_fewest_steps, reverse=True)
        found = sorted(found[:count], key=lambda row: row[0].place.replica)
        source = source_of(found, islands=self._islands) if self.epoch else None
        step = None if source is None else source.step
        if self.epoch or self.members.lost:
            self.record.changed(self.members.lost, step, program.parts.ranks)
        self._order(found, source, training)

    def _training_of_most(self, replicas: int) -> Training | None:
        """Return the training of as many replicas as a legal plan can have."""
        how = "; ".join(f"rank {one.rank}: {one.lost}" for one in self.members.lost)
        problem = f"{ONLY_COPY} ({how})"
        for count in range(replicas, 0, -1):
            try:
                return self.training_of(count)
            except MeshwrightError as error:
                problem = str(error) if count == replicas else problem
        self.record.stopped(self.members.lost)
        self.fail(problem)
        return None

    def _order(self, replicas: Replicas, source: Source | None, training: Training) -> None:
        """Give every member its rank in the next epoch, and let the others go."""
        self.values.end(_prefix(self.epoch))
        own = up_to_date(replicas, source, islands=self._islands) if source else set()
        orders = orders_of(self.members, replicas, source, training, own, begun=self.epoch > 0)
        self.epoch, self._broken_s = self.epoch + 1, None
        common = {"epoch": self.epoch, "fired": sorted(self.fired())}
        for member in self.members:
            if member.number in orders:
                place, order = orders[member.number]
                member.take(place, {**common, **order})
            elif member.rank is not None or member.report is not None:
                member.leave()
        self._changed.notify_all()


def _prefix(epoch: int) -> str:
    return f"epoch-{epoch}/"


def _fewest_steps(row: Sequence[Candidate]) -> int:
    return min(-1 if one.step is None else one.step for one in row)
