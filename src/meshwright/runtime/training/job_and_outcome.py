"""The inputs of a training run, and its outcome."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from meshwright.program.program import sequences_of_step
from meshwright.runtime.executor.rank import Job
from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.progress.model_flops_utilisation import Utilisation
from meshwright.runtime.training.evaluation import HeldOut
from meshwright.runtime.training.options import TrainingOptions

CHECKPOINTS, METRICS, PLAN, LISTS = "checkpoints", "metrics.jsonl", "plan.yaml", "schedule.csv"
ROUTING, ROUTING_PAIRS, TENSORBOARD = "routing.csv", "routing-pairs.csv", "tensorboard"
"""Files of a run in its output folder; ``ingest`` looks for a log's plan in the same folder."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """Inputs of all ranks of a run.

    ``initial`` is a folder of Hugging Face weights (None: random ones), ``resume`` a checkpoint, which takes precedence
    over both, and ``goes_on`` the message about it; ``export`` is the folder for the final weights, with the model's
    ``config``, or for adapters, whose ``base`` is described. For the output folder: ``plan`` is the text of the plan,
    ``lists`` that of its schedule's file if it has one, and ``facts`` begin the log of metrics. ``utilisation`` is
    called with a device's name and memory.
    """

    job: Job
    options: TrainingOptions
    utilisation: Callable[[str, int], Utilisation]
    initial: Path | None = None
    resume: Path | None = None
    goes_on: str = ""
    export: Path | None = None
    config: Mapping[str, object] | None = None
    base: Mapping[str, object] | None = None
    plan: str = ""
    lists: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.options.output / CHECKPOINTS

    @property
    def hang_s(self) -> float:
        """Seconds without progress after which a rank hangs."""
        return self.options.hang_s or self.job.timeout_s

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a whole batch."""
        program = self.job.program
        return sequences_of_step(program) * int(program.parts[0].shape.seq_len)


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The number of ranks of a run from ``step`` on, and the path of their plan in the output folder."""

    step: int
    ranks: int
    plan: str

    def to_json(self) -> dict[str, Any]:
        """Return the change as JSON-ready data."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Steps ``first_step`` … of a run: their losses, norms and seconds, as rank 0 saw them. ``stopped``: by a signal.

    ``checkpoint_blocked_s`` and ``checkpoint_lasted_s`` are medians: how long the run waited for a checkpoint,
    and how long it took to save one. ``device`` is ``cpu`` or the accelerator driver's name of it,
    ``device_bytes`` its memory. ``memory_bytes`` is the largest peak of allocated tensors on any rank, None on
    CPUs, whose allocator does not count. ``sequences_not_seen`` are those of late replicas, None if all wait for all.
    ``dropped`` is the share of routers' choices that exceeded an expert's capacity. ``faults`` are those that were
    detected, ``members`` the changes of the run's ranks.
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
    checkpoint_blocked_s: float | None = None
    checkpoint_lasted_s: float | None = None
    dropped: float | None = None
    sequences_not_seen: int | None = None
    faults: tuple[Fault, ...] = ()
    members: tuple[Members, ...] = ()
