"""What a simulation returns: every action with its start and end."""

from dataclasses import dataclass

from meshwright.schedule.action import PASS_KINDS, Action


@dataclass(frozen=True, slots=True)
class Record:
    """One action on one stream of a pipeline rank; seconds from the start of the step."""

    action: Action
    start: float
    end: float
    stream: str


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulated step: per pipeline rank the records in the order in which they ran.

    ``overlapping``: ranks go on to the next step by themselves, so that steps follow each other at the pace of the
    rank that needs longest from its first action to its last.
    """

    ranks: tuple[tuple[Record, ...], ...]
    overlapping: bool = False

    @property
    def step_s(self) -> float:
        """Length of the step in seconds."""
        ends = [max(record.end for record in records) for records in self.ranks]
        if not self.overlapping:
            return max(ends)
        starts = [min(r.start for r in records if r.action.kind in PASS_KINDS) for records in self.ranks]
        return max(end - start for start, end in zip(starts, ends, strict=True))

    def busy_s(self, rank: int) -> float:
        """Seconds that a rank spends in forward and backward passes."""
        return sum(r.end - r.start for r in self.ranks[rank] if r.action.kind in PASS_KINDS)
