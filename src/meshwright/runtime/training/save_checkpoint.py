"""Save the checkpoints of a run, at once or in the background, and remove old ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter
from typing import Any

import torch.distributed as dist

from meshwright.errors import InputError, RunError
from meshwright.runtime.checkpoint import prune_checkpoints, save_checkpoint
from meshwright.runtime.checkpoint.background_save import BackgroundSave, SaveOptions
from meshwright.runtime.checkpoint.run_folder import NoSpaceError
from meshwright.runtime.executor.rank import Rank
from meshwright.runtime.faults.fault import Fault, FaultError
from meshwright.runtime.training.options import TrainingOptions
from meshwright.units import GIB


@dataclass
class CheckpointSaver:
    """The checkpoints of one rank's run in ``folder``. ``saved`` is the newest one that is complete.

    ``blocked_s``: for each checkpoint, the seconds that the run waited for it; ``lasted_s``: those from its begin to
    its commitment.
    """

    rank: Rank
    folder: Path
    options: TrainingOptions
    store: dist.Store
    saved: Path | None = None
    blocked_s: list[float] = field(default_factory=list)
    lasted_s: list[float] = field(default_factory=list)
    _running: BackgroundSave | None = None
    _begun: int = 0

    def save(self, facts: dict[str, Any]) -> None:
        """Save the state behind the step that was taken last, or begin to.

        Raises RunError if it cannot be written: FaultError where a rank's disk is full.
        """
        self.finish()
        self.blocked_s.append(0.0)
        with self._blocked(self.rank.interpreter.states.optimizer.step, monotonic()):
            if not self.options.checkpoint_async:
                began = perf_counter()
                self.saved = save_checkpoint(self.folder, self.rank, facts)
                self.lasted_s.append(perf_counter() - began)
                self._remove_old()
                return
            buffer = self.options.checkpoint_buffer_gib
            how = SaveOptions(None if buffer is None else int(buffer * GIB), self.options.checkpoint_local)
            self._begun += 1
            self._running = BackgroundSave(
                self.folder, self.rank, facts, self.store, how, self._begun, self._remove_old
            )

    def before_optimizer(self) -> None:
        """Wait until what is being saved is copied, so that the optimizer may change it."""
        if self._running is not None:
            with self._blocked(self._running.step, self._running.begun_s):
                self._running.wait_until_copied()

    def finish(self) -> None:
        """Wait for the checkpoint that is being saved. Raises RunError if it could not be written."""
        if self._running is None:
            return
        with self._blocked(self._running.step, self._running.begun_s):
            running, self._running = self._running, None
            self.saved = running.finish()
            self.lasted_s.append(running.lasted_s)

    @property
    def median_blocked_s(self) -> float | None:
        """The median of the seconds that the run waited for a checkpoint; None without checkpoints."""
        return median(self.blocked_s) if self.blocked_s else None

    @property
    def median_lasted_s(self) -> float | None:
        """The median of the seconds that a checkpoint took; None without checkpoints."""
        return median(self.lasted_s) if self.lasted_s else None

    def _remove_old(self) -> None:
        if self.rank.place.rank == 0:
            prune_checkpoints(self.folder, self.options.keep_last, self.options.keep_every)

    @contextmanager
    def _blocked(self, done: int, begun_s: float) -> Iterator[None]:
        """Count the time of the block as waiting for the newest checkpoint, that of the state behind ``done`` steps.

        Name what cannot be written, and the ranks whose disk is full. ``begun_s`` is when it was begun.
        """
        began = perf_counter()
        try:
            yield
        except InputError as error:
            text = f"no checkpoint was saved behind step {done - 1}: {error}"
            if isinstance(error, NoSpaceError):
                seconds = monotonic() - begun_s
                raise FaultError(
                    Fault(kind="full", rank=rank, step=done - 1, evidence=text, detected_s=seconds)
                    for rank in error.ranks
                ) from None
            raise RunError(text) from None
        finally:
            self.blocked_s[-1] += perf_counter() - began
