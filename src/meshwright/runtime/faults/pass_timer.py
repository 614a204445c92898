"""The seconds that an accelerator spends in the passes of a step, by its own clock.

The host queues operations and learns little about when they run: at the end of a step it has waited for all ranks, on
each of them equally long. Passes include their own exchanges (tensor parallelism, gathers of parameters), so ranks that
exchange something in every pass are slow together.
"""

from dataclasses import dataclass, field

import torch

from meshwright.schedules.action import PASS_KINDS, Action


@dataclass
class PassTimer:
    """Events at the begin and end of each pass of the present step."""

    events: list[torch.cuda.Event] = field(default_factory=list)

    def hear(self, action: Action, word: str) -> None:
        """Record an event where a pass begins or ends ("begin" or "end")."""
        if action.kind in PASS_KINDS:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.events.append(event)

    def seconds(self) -> float:
        """Return the seconds of all passes since the last call, when they are over."""
        if not self.events:
            return 0.0
        self.events[-1].synchronize()
        pairs = zip(self.events[::2], self.events[1::2], strict=True)
        total_ms = sum(begin.elapsed_time(end) for begin, end in pairs)
        self.events.clear()
        return float(total_ms) / 1e3
