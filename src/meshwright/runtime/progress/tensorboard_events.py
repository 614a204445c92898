"""Write the metrics of a run as event files for TensorBoard."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.progress.step_metrics import StepMetrics

FLUSH_S = 5
"""Seconds of events that a process that is killed may lose."""
SHOWN = ("loss", "grad_norm", "lr", "tokens_per_s", "mfu", "step_time_s", "waited_s", "memory_bytes")
"""Numbers of a step that are written, each as a curve by steps."""


@dataclass(frozen=True)
class TensorBoardEvents:
    """Event files that are open."""

    writer: SummaryWriter

    def step(self, metrics: StepMetrics) -> None:
        """Write the numbers of a step that are known."""
        for name in SHOWN:
            value = getattr(metrics, name)
            if value is not None:
                self.writer.add_scalar(name, value, metrics.step)

    def evaluation(self, step: int, held_out_loss: float, held_out_tokens: int) -> None:
        """Write the loss on held-out tokens."""
        self.writer.add_scalar("held_out_loss", held_out_loss, step)

    def fault(self, fault: Fault) -> None:
        """Write a fault as text."""
        self.writer.add_text("fault", str(fault), fault.step)


@contextmanager
def tensorboard_events(folder: Path, next_step: int) -> Iterator[TensorBoardEvents]:
    """Yield new event files in a folder; readers drop what earlier ones have of ``next_step`` and later steps."""
    purged = {"purge_step": next_step} if next_step else {}
    writer = SummaryWriter(str(folder), flush_secs=FLUSH_S, **purged)
    try:
        yield TensorBoardEvents(writer)
    finally:
        writer.close()
