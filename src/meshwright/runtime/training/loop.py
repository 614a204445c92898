"""The training loop of one rank: steps, and the evaluations and checkpoints due between them.

All ranks do the same in the same order; rank 0 also reports. A loss or norm that is not finite ends the run before the
optimizer uses its gradients, on all ranks at once, since all have the same numbers. Islands of replicas have numbers of
their own: those of the first are reported, and a rank that fails ends the others. If steps are validated afterwards,
a step's loss and norm are known during the next one, and its gradients' effect is undone before the run ends; before
parameters are evaluated or saved the last step is validated.
"""

from dataclasses import dataclass, field
from time import perf_counter, time

import torch

from meshwright.errors import MeshwrightError, RunError
from meshwright.program.synchronisation.islands import islands
from meshwright.runtime.batch.label_counts import divisor_of, labels_by_replica
from meshwright.runtime.data.batches import whole_batch
from meshwright.runtime.data.open_data import TrainingData
from meshwright.runtime.executor.interpreter import finish_validation
from meshwright.runtime.executor.rank import Rank
from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.faults.fault_dump import dumps_on_signal
from meshwright.runtime.faults.rank_health import RankHealth
from meshwright.runtime.faults.step_series import StepSeconds
from meshwright.runtime.launch.forked_ranks import Report
from meshwright.runtime.progress.display import Display
from meshwright.runtime.progress.metrics_outputs import MetricsOutput
from meshwright.runtime.progress.model_flops_utilisation import Utilisation
from meshwright.runtime.progress.step_metrics import StepMetrics
from meshwright.runtime.recovery.progress_board import ProgressRow, StepTaken
from meshwright.runtime.state.anchor_parameters import anchored_model
from meshwright.runtime.state.post_validation import StepResult
from meshwright.runtime.training.data_micro_batches import micro_batches
from meshwright.runtime.training.evaluation import Evaluation, HeldOut
from meshwright.runtime.training.job_and_outcome import Outcome, Training
from meshwright.runtime.training.save_checkpoint import CheckpointSaver
from meshwright.runtime.training.stop_signals import Stopping
from meshwright.runtime.training.world_reduction import max_over_ranks, sum_over_ranks

PEAK_STEPS = 2
"""Steps after which the memory peak is read again: by then everything has been allocated once."""


@dataclass
class Loop:
    """A run on one rank. ``log`` exists on rank 0 only; ``display`` shows nothing on the others."""

    rank: Rank
    training: Training
    data: TrainingData
    stopping: Stopping
    display: Display
    log: MetricsOutput | None
    utilisation: Utilisation
    checkpoints: CheckpointSaver
    report: Report
    row: ProgressRow
    health: RankHealth
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    spent: list[StepSeconds] = field(default_factory=list)
    held_out: list[HeldOut] = field(default_factory=list)
    first: int = 0
    peak_bytes: int | None = None

    def __post_init__(self) -> None:
        self.evaluation = Evaluation(self.rank)
        self.rank.interpreter.hear = self.health.hear
        self.health.tell = self._tell
        self.rank.interpreter.states.after_norm = self._refuse_what_is_not_finite
        self.rank.interpreter.states.before_step = self.checkpoints.before_optimizer

    def run(self, first: int) -> Outcome:
        """Run steps ``first`` … up to the last one, or until a signal."""
        with dumps_on_signal(lambda: self.health.dump("a fault of the run")):
            try:
                return self._run(first)
            except MeshwrightError as error:
                self.health.dump(str(error))
                raise

    def _run(self, first: int) -> Outcome:
        options, device, stop = self.training.options, self.rank.communicator.device, False
        self.first = first
        for step in range(first, options.steps):
            self._step(step)
            done = step + 1
            stop = self.stopping.agreed() and done < options.steps
            last = stop or done == options.steps
            evaluated, saved = (
                _due(options.evaluate_every, done),
                last or _due(options.checkpoint_every, done),
            )
            compared = self.health.due(done, saves=saved)
            if evaluated or saved or compared:
                self._known(finish_validation(self.rank.interpreter))
            if compared:
                self.health.compare(step)
            if evaluated:
                self._evaluate(step)
            if saved:
                self.save()
            if stop:
                break
        self.checkpoints.finish()
        if stop:
            there = self.checkpoints.saved
            self.display.note(f"Stopped by a signal behind step {step}; {there} is there to go on from.")
        return Outcome(
            device=device_name(device),
            device_bytes=device_bytes(device),
            first_step=first,
            losses=tuple(self.losses),
            norms=tuple(self.norms),
            step_times_s=tuple(self.times_s),
            held_out=tuple(self.held_out),
            memory_bytes=self.peak_bytes,
            sequences_not_seen=self.rank.interpreter.states.arrivals.total_not_seen,
            stopped=stop,
            checkpoint=self.checkpoints.saved,
            checkpoint_blocked_s=self.checkpoints.median_blocked_s,
            checkpoint_lasted_s=self.checkpoints.median_lasted_s,
            export=None,
        )

    def _step(self, step: int) -> None:
        """Run one optimizer step, and report it or the previous one."""
        rank, options, began = self.rank, self.training.options, perf_counter()
        self.stopping.begin(step)
        self.row.begin_step(step)
        self.health.begin_step(step)
        batch = whole_batch(self.data.training, step)
        program, labels = rank.job.program, torch.from_numpy(batch.labels)
        by_replica = labels_by_replica(program, labels)
        divisor = max(1, divisor_of(program, rank.place.rank, labels, by_replica))
        result = rank.interpreter.step(
            micro_batches(batch, program, rank.place.rank, divisor, rank.communicator.device),
            options.learning_rate(step) / options.lr,
            by_replica,
        )
        self.times_s.append(perf_counter() - began)
        self.spent.append(self.health.end_step(step, self.times_s[-1]))
        if step < self.first + PEAK_STEPS:
            self.peak_bytes = self._peak()
        losses = self._losses_of_islands(result)
        self._known(result, losses)
        if step == self.first and rank.place.rank == 0:
            self.report.tell(StepTaken(step))

    def _losses_of_islands(self, result: StepResult | None) -> tuple[float, ...] | None:
        """Return the loss of each island where an exchange begins or ends behind the step; None elsewhere."""
        states = self.rank.interpreter.states
        periods, step = states.synchroniser.periods.values(), states.optimizer.step
        if result is None or not any(of.exchanges_at(step) for of in periods):
            return None
        program, own = self.rank.job.program, self.rank.place.rank
        firsts = [ranks[0] for ranks in islands(program.parts[0].grid, program.loose)]
        values = [result.loss if own == first else 0.0 for first in firsts]
        return sum_over_ranks(self.rank.communicator, values, "losses of islands")

    def _known(self, result: StepResult | None, of_islands: tuple[float, ...] | None = None) -> None:
        """Record and report the result of the earliest unreported step, if there is one."""
        self.rank.communicator.log.clear()
        if result is None:
            return
        step = self._unknown
        self.losses.append(self.health.loss(step, result.loss))
        self.norms.append(result.norm)
        self.log_step(step, self.losses[-1], result.norm, self.times_s[step - self.first], of_islands)

    @property
    def _unknown(self) -> int:
        """The first step whose loss is not known."""
        return self.first + len(self.losses)

    def log_step(
        self, step: int, loss: float, norm: float, seconds: float, of_islands: tuple[float, ...] | None = None
    ) -> None:
        """Log and show a step, also an earlier one that its first rank has not logged."""
        if self.log is None:
            return
        tokens = self.training.tokens_per_step
        metrics = StepMetrics(
            step=step,
            loss=loss,
            loss_islands=of_islands,
            sequences_not_seen=self.rank.interpreter.states.arrivals.not_seen,
            grad_norm=norm,
            lr=self.training.options.learning_rate(step),
            tokens=(step + 1) * tokens,
            tokens_per_s=tokens / seconds,
            mfu=self.utilisation.mfu(tokens / seconds),
            step_time_s=seconds,
            memory_bytes=self.peak_bytes,
            time_s=time(),
            waited_s=self.spent[step - self.first].waited_s if step >= self.first else None,
        )
        self.log.step(metrics)
        self.display.show(metrics)

    def _tell(self, fault: Fault) -> None:
        """Log a fault that does not end the run, and show it or let the parent do so."""
        self.report.tell(fault)
        if self.rank.place.launcher != "local":
            self.display.note(f"Warning: {fault}.")
        if self.log is not None:
            self.log.fault(fault)

    def _evaluate(self, step: int) -> None:
        with anchored_model(self.rank.interpreter.states):
            found = self.evaluation.loss(self.data, step)
        self.rank.communicator.log.clear()
        self.held_out.append(found)
        self.display.note(f"step {step}  held-out loss {found.loss:.4f} on {found.tokens} tokens")
        if self.log is not None:
            self.log.evaluation(step, found.loss, found.tokens)

    def save(self) -> None:
        """Save a checkpoint, or begin to. Raises RunError if it cannot be written."""
        self.peak_bytes = self._peak()
        facts = {"options": self.training.options.to_json(), "data": dict(self.data.identity)}
        facts |= {} if self.training.base is None else {"base": dict(self.training.base)}
        self.checkpoints.save(facts)

    def _peak(self) -> int | None:
        """Return the largest peak of allocated tensor bytes so far on any rank; None on CPUs."""
        device = self.rank.communicator.device
        if device.type != "cuda":
            return None
        own = torch.cuda.max_memory_allocated(device)
        return int(max_over_ranks(self.rank.communicator, own, "peak of memory"))

    def _refuse_what_is_not_finite(self, result: StepResult) -> None:
        """Raise RunError for a loss or norm that is not finite, before the optimizer uses the gradients."""
        if not result.finite:
            there = self.checkpoints.saved or self.training.resume
            after = f"the last checkpoint is {there}" if there else "there is no checkpoint yet"
            raise RunError(
                f"step {self._unknown}: the loss is {result.loss:g} and the norm of gradients {result.norm:g}; "
                f"nothing was updated, {after}. Suggestion: a smaller --lr, a longer --warmup, or other data"
            )


def _due(every: int, done: int) -> bool:
    return every > 0 and done % every == 0


def device_name(device: torch.device) -> str:
    """Return the accelerator driver's name of a device; ``cpu`` for a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def device_bytes(device: torch.device) -> int:
    """Return the memory of an accelerator; 0 for a CPU, whose memory is shared."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0
