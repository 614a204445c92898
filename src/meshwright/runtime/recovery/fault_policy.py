"""Choose the action for faults: that of the run's policy, or to stop after too many recoveries."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from meshwright.runtime.faults.fault import Action, Fault

ANSWERS: dict[str, Action] = {
    "stop": "stopped",
    "restart": "restarted",
    "replan": "replanned",
    "shrink": "shrunk",
}


@dataclass
class FaultPolicy:
    """The policy of a run, and how often each fault came. The same fault is one of a kind at a step."""

    policy: str
    max_restarts: int
    counts: Counter[tuple[str, int | None, int]] = field(default_factory=Counter)

    def answered(self, faults: Iterable[Fault]) -> tuple[Fault, ...]:
        """Return faults that came together with what is done about them: all ``stopped`` if one came too often."""
        found = tuple(faults)
        self.counts.update({(fault.kind, fault.rank, fault.step) for fault in found})
        often = any(self.counts[fault.kind, fault.rank, fault.step] > self.max_restarts for fault in found)
        action: Action = "stopped" if often else ANSWERS[self.policy]
        return tuple(replace(fault, action=action) for fault in found)
