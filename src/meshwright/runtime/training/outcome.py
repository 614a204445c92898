"""What a training run was told, and what became of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from meshwright.runtime.options import TrainingOptions
from meshwright.runtime.progress.utilisation import Utilisation
from meshwright.runtime.rank import Job
from meshwright.runtime.training.evaluation import HeldOut

CHECKPOINTS, METRICS, PLAN, LISTS = "checkpoints", "metrics.jsonl", "plan.yaml", "schedule.csv"
ROUTING, ROUTING_PAIRS = "routing.csv", "routing-pairs.csv"
"""What a run writes below its output folder; ``ingest`` looks for the plan of a log beside it."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """What all ranks of a run are told.

    ``initial`` is a folder of Hugging Face weights (random ones where None), ``resume`` a checkpoint, which comes
    before both, and ``goes_on`` what is told of that; ``export`` is where the weights go at the end, with the model's
    ``config``. For the output folder: ``plan`` is the text of the plan, ``lists`` that of its schedule's file if it has
    one, and ``facts`` begin the log of metrics. ``utilisation`` is asked with a device's name and memory.
    """

    job: Job
    options: TrainingOptions
    utilisation: Callable[[str, int], Utilisation]
    initial: Path | None = None
    resume: Path | None = None
    goes_on: str = ""
    export: Path | None = None
    config: Mapping[str, object] | None = None
    plan: str = ""
    lists: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints lie."""
        return self.options.output / CHECKPOINTS

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a whole batch."""
        program = self.job.program
        replicas = program.grid.size(("dp_replicate", "dp_shard"))
        shape = program.shape
        return int(replicas * program.micro_batches * shape.micro_batch * shape.seq_len)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Steps ``first_step`` … of a run: their losses, norms and seconds, as rank 0 saw them. ``stopped``: by a signal.

    ``device`` is ``cpu`` or the name that the accelerator's driver gives it, ``device_bytes`` its memory.
    ``memory_bytes`` is the most that an allocator of a rank gave to tensors, None on CPUs, whose allocator counts
    nothing. ``dropped`` is the share of routers' choices for which experts of a capacity had no place.
    """

    device: str
    device_bytes: int
    first_step: int
    losses: tuple[float, ...]
    norms: tuple[float, ...]
    step_times_s: tuple[float, ...]
    held_out: tuple[HeldOut, ...]
    memory_bytes: int | None
    stopped: bool
    checkpoint: Path | None
    export: Path | None
    dropped: float | None = None
