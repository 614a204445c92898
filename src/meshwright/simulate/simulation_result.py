"""The result of a simulation: every action with its start and end."""

from dataclasses import dataclass, replace

from meshwright.schedules.action import PASS_KINDS, Action


@dataclass(frozen=True, slots=True)
class Record:
    """One action on one stream of a pipeline rank; seconds from the start of the step."""

    action: Action
    start: float
    end: float
    stream: str

    def earlier(self, seconds: float) -> "Record":
        """Return the record shifted to an earlier time by so many seconds."""
        return replace(self, start=self.start - seconds, end=self.end - seconds)


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulated step: per pipeline rank the records in the order in which they ran.

    Where ranks go on to the next step by themselves, this is one step of many: ``period_s`` is from the end of one to
    the end of the next. Then it is longer than ``period_s`` from the first start of all to the last end of all, for the
    first ranks are ahead of the last ones.
    """

    ranks: tuple[tuple[Record, ...], ...]
    period_s: float | None = None

    @property
    def step_s(self) -> float:
        """Length of the step in seconds: by so much every further step makes a run longer."""
        if self.period_s is not None:
            return self.period_s
        return max(max(record.end for record in records) for records in self.ranks)

    def busy_s(self, rank: int) -> float:
        """Seconds that a rank spends in forward and backward passes."""
        return sum(r.end - r.start for r in self.ranks[rank] if r.action.kind in PASS_KINDS)
