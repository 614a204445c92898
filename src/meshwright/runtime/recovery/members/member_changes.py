"""Record the changes of a run's ranks and the faults that they answer."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.recovery.members.member_table import Member
from meshwright.runtime.training.job_and_outcome import PLAN, Members


@dataclass
class MemberChanges:
    """Faults, and changes of ranks as (step, ranks). ``say`` prints a sentence; ``first_step`` is the run's."""

    say: Callable[[str], None]
    faults: list[Fault] = field(default_factory=list)
    changes: list[tuple[int, int]] = field(default_factory=list)
    first_step: int | None = None
    _named_s: float | None = None

    def changed(self, lost: Iterable[Member], step: int | None, ranks: int) -> None:
        """Note that ranks were lost or joined: the run goes on at ``step``, None for a checkpoint."""
        at = step or 0
        for member in lost:
            fault = _fault_of(member, at)
            self.faults.append(replace(fault, action="shrunk"))
            self.say(f"{fault}. The run is shrunk.")
        self.changes.append((at, ranks))
        self._named_s = monotonic()
        where = "its newest checkpoint or begin" if step is None else f"step {at}"
        self.say(f"The run goes on from {where} with {ranks} ranks.")

    def stopped(self, lost: Iterable[Member]) -> None:
        """Note that the run ends with the loss of members."""
        self.faults += [replace(_fault_of(member, 0), action="stopped") for member in lost]

    def warn(self, fault: Fault) -> None:
        """Keep and print a fault that the run goes on with."""
        self.faults.append(fault)
        self.say(f"Warning: {fault}.")

    def stepped(self, step: int) -> None:
        """Note that the first step of an epoch was taken."""
        self.first_step = step if self.first_step is None else self.first_step
        if self._named_s is None:
            return
        seconds, self._named_s = monotonic() - self._named_s, None
        self.faults = [
            replace(one, resumed_s=seconds) if one.resumed_s is None and one.action == "shrunk" else one
            for one in self.faults
        ]

    def members(self, output: Path) -> tuple[Members, ...]:
        """Return the changes with the paths of their plans; former plans are kept by their last step."""
        ends = [*(step for step, _ in self.changes[1:]), None]
        names = [PLAN if end is None else f"{Path(PLAN).stem}-{end}{Path(PLAN).suffix}" for end in ends]
        return tuple(
            Members(step=step, ranks=ranks, plan=str(output / name))
            for (step, ranks), name in zip(self.changes, names, strict=False)
        )


def _fault_of(member: Member, step: int) -> Fault:
    """Return the fault by which a member was lost; a death at ``step`` where nothing else is known."""
    return member.fault or Fault(kind="kill", rank=member.rank, step=step, evidence=member.lost)
