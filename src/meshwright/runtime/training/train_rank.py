"""Train as one rank: from joining the others to the last checkpoint."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from rich.console import Console

from meshwright import __version__
from meshwright.model.graph import ModelGraph
from meshwright.model.named_tensors import adapted_matrices, adapter_shapes, named_parameters
from meshwright.model.transforms.lora_adapters import with_stacked_pairs
from meshwright.program.model_states.base_changes import replicas_of
from meshwright.runtime.checkpoint import export_weights, restore_checkpoint
from meshwright.runtime.data.open_data import TrainingData
from meshwright.runtime.executor.rank import Rank, rank_of
from meshwright.runtime.faults.injected_faults import InjectedFaults
from meshwright.runtime.faults.injection import injections
from meshwright.runtime.faults.rank_health import RankHealth
from meshwright.runtime.launch.forked_ranks import Report
from meshwright.runtime.launch.launcher_environment import Place
from meshwright.runtime.launch.network_address import network_address
from meshwright.runtime.launch.rendezvous import agreed
from meshwright.runtime.progress.display import Display, display
from meshwright.runtime.progress.metrics_outputs import MetricsOutput, open_outputs
from meshwright.runtime.recovery.progress_board import ProgressRow
from meshwright.runtime.training.job_and_outcome import (
    LISTS,
    METRICS,
    PLAN,
    ROUTING,
    ROUTING_PAIRS,
    TENSORBOARD,
    Outcome,
    Training,
)
from meshwright.runtime.training.loop import Loop, device_bytes, device_name
from meshwright.runtime.training.routing_files import dropped_of_run, routing_counts_of_run, write_choices
from meshwright.runtime.training.save_checkpoint import CheckpointSaver
from meshwright.runtime.training.stop_signals import Stopping, stopping
from meshwright.runtime.weights.adapter_values import BaseAndAdapters, InitialAdapters
from meshwright.runtime.weights.load import load
from meshwright.runtime.weights.peft_files import is_adapter_folder, load_adapters
from meshwright.runtime.weights.principal_pairs import PrincipalPairs
from meshwright.runtime.weights.random_tensors import RandomTensors


def train(
    place: Place,
    store: dist.Store,
    training: Training,
    data: TrainingData,
    console: Console | None,
    report: Report,
    row: ProgressRow,
    *,
    early: Sequence[int] = (),
) -> Outcome:
    """Train as a rank; ``console`` shows rank 0's progress. Raises InputError and RunError.

    ``report`` tells faults and the first step to the parent, ``row`` shows it the rank's progress. ``early`` are
    signals received before the start.
    """
    job, chosen = training.job, agreed(store, place, "resume", str(training.resume or ""))
    announce = console is not None and place.rank == 0 and place.launcher != "local"  # the parent reports
    with (
        stopping(store, job.program, place.rank, announce=announce, early=early) as heard,
        rank_of(job, place, store, initial_tensors(training, resumed=bool(chosen))) as rank,
    ):
        if chosen:
            restore_checkpoint(Path(chosen), rank)
        return trained(
            rank, training, data, console, heard, store, Path(chosen) if chosen else None, report, row
        )


def trained(
    rank: Rank,
    training: Training,
    data: TrainingData,
    console: Console | None,
    heard: Stopping,
    store: dist.Store,
    checkpoint: Path | None,
    report: Report,
    row: ProgressRow,
    prepare: Callable[[Loop], None] = lambda loop: None,
) -> Outcome:
    """Train a rank from the step of its states on; ``checkpoint`` is where they are from.

    ``prepare`` is called with the loop before its first step.
    """
    job, place = training.job, rank.place
    injected = InjectedFaults(injections(training.options.inject), place.rank, row.fire)
    rank = replace(rank, before_write=injected.before_write)
    first, device = rank.interpreter.states.optimizer.step, rank.communicator.device
    used = training.utilisation(device_name(device), device_bytes(device))
    other = None if used.planned else device_name(device)
    facts = {**training.facts, "other_device": other, "mfu_origin": used.origin}
    with _outputs(place, training, first, facts, console) as (log, shown):
        if training.goes_on:
            shown.note(training.goes_on)
        saver = CheckpointSaver(rank, training.checkpoints, training.options, store, checkpoint)
        health = RankHealth(rank, training.options, store, heard, injected, row)
        loop = Loop(rank, training, data, heard, shown, log, used, saver, report, row, health)
        prepare(loop)
        outcome = loop.run(first)
        choices, output = routing_counts_of_run(rank, job.model), training.options.output
        if choices is not None:
            outcome = replace(outcome, dropped=dropped_of_run(rank, choices))
            if place.rank == 0:
                write_choices(output / ROUTING, output / ROUTING_PAIRS, choices)
    if training.export is None or outcome.stopped:
        return outcome
    export_weights(training.export, rank, job.model, training.config, training.base)
    return replace(outcome, export=training.export)


def initial_tensors(training: Training, *, resumed: bool) -> Mapping[str, torch.Tensor]:
    """Return the parameters that a rank begins with; zeros where ``resumed`` states overwrite them."""
    if resumed and training.base is None:
        return Blank(training.job.model)
    return _tensors(training, resumed=resumed)


def _tensors(training: Training, *, resumed: bool) -> Mapping[str, torch.Tensor]:
    """Return the initial parameters of a run; zeros for decomposed ones that a checkpoint overwrites."""
    model, seed = training.job.model, training.options.seed
    if training.base is None:
        return RandomTensors(model, seed) if training.initial is None else Stored(training.initial, model)
    base = base_tensors(training.base, model)
    if any(op.of_each_replica for _, op, _ in adapted_matrices(model)):
        stacked = with_stacked_pairs(model, replicas_of(training.job.program))
        blank = {name: torch.zeros(()).expand(shape) for name, shape in adapter_shapes(stacked).items()}
        return BaseAndAdapters(base, blank if resumed else PrincipalPairs(base, stacked))
    adapters: Mapping[str, torch.Tensor] = InitialAdapters(model, seed)
    if training.initial is not None and is_adapter_folder(training.initial):
        adapters = load_adapters(training.initial, model)
    return BaseAndAdapters(base, adapters)


def base_tensors(base: Mapping[str, object], model: ModelGraph) -> Mapping[str, torch.Tensor]:
    """Return the frozen tensors that adapters are trained on: those of a folder, or random ones."""
    if base["init"] is not None:
        return Stored(Path(str(base["init"])), model)
    return RandomTensors(model, int(str(base["seed"])))


class Blank(Mapping[str, torch.Tensor]):
    """Zeros in the shapes of a model's tensors, for a checkpoint to overwrite."""

    def __init__(self, model: ModelGraph) -> None:
        self._shapes = {name: parameter.shape for name, parameter in named_parameters(model).items()}

    def __getitem__(self, name: str) -> torch.Tensor:
        return torch.zeros(()).expand(self._shapes[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


class Stored(Blank):
    """The tensors of a Hugging Face checkpoint, each read on access."""

    def __init__(self, folder: Path, model: ModelGraph) -> None:
        super().__init__(model)
        self._folder, self._model = folder, model

    def __getitem__(self, name: str) -> torch.Tensor:
        return load(self._folder, self._model, {name: ()})[name]


def keep_former_plan(output: Path, plan: str, lists: str, step: int) -> None:
    """Keep the plan of a run's first ``step`` steps, if it goes on under another one, as ``plan-STEP.yaml``."""
    path, schedule = output / PLAN, output / LISTS
    if not step or not path.exists():
        return
    former, named = path.read_text(encoding="utf-8"), schedule.with_stem(f"{schedule.stem}-{step}")
    written = schedule.read_text(encoding="utf-8") if schedule.exists() and LISTS in former else ""
    if (former, written) == (plan, lists):
        return
    if written:
        schedule.replace(named)
    path.with_stem(f"{path.stem}-{step}").write_text(former.replace(LISTS, named.name), encoding="utf-8")


@contextmanager
def _outputs(
    place: Place, training: Training, first: int, facts: Mapping[str, object], console: Console | None
) -> Iterator[tuple[MetricsOutput | None, Display]]:
    """Yield the metrics log and the display; only rank 0 has a log."""
    steps = training.options.steps
    if place.rank:
        with display(None, steps) as shown:
            yield None, shown
        return
    output, options = training.options.output, training.options
    tensorboard = output / TENSORBOARD if options.tensorboard else None
    prometheus = network_address(options.prometheus, "prometheus") if options.prometheus else None
    opened = open_outputs(output / METRICS, __version__, facts, first, tensorboard, prometheus)
    with opened as log, display(console, steps) as shown:
        keep_former_plan(output, training.plan, training.lists, first)
        (output / PLAN).write_text(training.plan, encoding="utf-8")
        if training.lists:
            (output / LISTS).write_text(training.lists, encoding="utf-8")
        yield log, shown
