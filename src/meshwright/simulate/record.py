"""What a simulation returns: every action with its start and end."""

from dataclasses import dataclass

from meshwright.schedule.action import COMPUTE_KINDS, Action


@dataclass(frozen=True, slots=True)
class Record:
    """One action on one stream of a pipeline rank; seconds from the start of the step."""

    action: Action
    start: float
    end: float
    stream: str


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulated step: per pipeline rank the records in the order in which they ran."""

    ranks: tuple[tuple[Record, ...], ...]

    @property
    def step_s(self) -> float:
        """Length of the step in seconds."""
        return max(record.end for records in self.ranks for record in records)

    def busy_s(self, rank: int) -> float:
        """Seconds that a rank spends in forward and backward passes."""
        return sum(r.end - r.start for r in self.ranks[rank] if r.action.kind in COMPUTE_KINDS)
