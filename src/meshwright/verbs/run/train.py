"""Train a plan on this host, or as one rank that a launcher started."""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import InputError, Problem, attempted
from meshwright.model.load import load_config
from meshwright.plans.files.custom_schedule_file import renamed
from meshwright.plans.files.plan_file import dump_plan
from meshwright.plans.resolve import Resolved
from meshwright.program.lowering.lower_plan import lower
from meshwright.validation.model_to_columns import model_columns
from meshwright.verbs.absolute_paths import with_whole_paths
from meshwright.verbs.run.frozen_base import base_of_checkpoint, new_base
from meshwright.verbs.run.join import check_same_run, joined
from meshwright.verbs.run.run_request import SHRINK, CheckedRun, RunRequest, check_run_request
from meshwright.verbs.run.shrink import after_changes, shrinkable_run
from meshwright.verbs.run.training_report import CompletedRun, utilisation_on

if TYPE_CHECKING:
    from meshwright.runtime.data.open_data import DataNeeds, TrainingData
    from meshwright.runtime.launch.launcher_environment import Place
    from meshwright.runtime.recovery.members.run_members import Shrinkable
    from meshwright.runtime.training.job_and_outcome import Training


def trained(resolved: Resolved, request: RunRequest, *, show: bool = False) -> CompletedRun | None:
    """Train a legal plan; None on launched ranks other than the first.

    ``show``: rank 0 tells on standard error how it goes. Raises InputError with all problems, and RunError naming the
    rank.
    """
    _check_installed()
    from meshwright.runtime.data.open_data import open_data
    from meshwright.runtime.launch.launcher_environment import launched_place
    from meshwright.runtime.training.launch_training import start
    from meshwright.runtime.training.resume import checkpoints_dropped_notice

    place, load_average = launched_place(os.environ), os.getloadavg()[0]
    if request.join is not None:
        return _joined(resolved, request, place, load_average, show=show)
    if place is not None:
        resolved = _for_launched_ranks(resolved, request, place)
    grant = check_run_request(resolved, request, place)
    data = open_data(grant.options, _needs(grant.resolved))
    training = replace(_training(grant, request, data), base=_base(grant, request))
    remarks = [*grant.remarks, *data.remarks, *_initial_remark(grant, request)]
    if grant.resume is not None:
        training = replace(training, goes_on=_goes_on(training, data))
        remarks += checkpoints_dropped_notice(grant.options)
    latest = [grant]

    def planned_anew(devices: int, checkpoint: Path | None) -> "Training":
        latest.append(_granted_anew(latest[-1], devices, checkpoint))
        return replace(_training(latest[-1], request, data), base=training.base)

    shrinkable = (
        _shrinkable(grant, request, data, training.base) if grant.options.on_fault == SHRINK else None
    )
    outcome = start(training, data, place, remarks if show else None, planned_anew, shrinkable)
    if outcome is None:
        return None
    grant = after_changes(grant, outcome) if shrinkable else latest[-1]
    if outcome.export is not None and data.tokenizer is not None:
        shutil.copy(data.tokenizer, outcome.export)
    remarks += [training.goes_on] if training.goes_on else []
    return CompletedRun(grant, data.facts, outcome, tuple(remarks), load_average)


def _for_launched_ranks(resolved: Resolved, request: RunRequest, place: "Place") -> Resolved:
    """Return the plan, or under ``replan`` the best one for the number of processes that a launcher has started.

    Every rank searches it: the same plan comes out, and its Program is compared before the first step.
    """
    same = place.ranks == resolved.setting.cluster.devices
    if same or request.options.get("on_fault") != "replan":
        return resolved
    from meshwright.verbs.run.replan import replanned

    request.output.mkdir(parents=True, exist_ok=True)
    return replanned(resolved, place.ranks, request.output, all_of_them=True)


def _granted_anew(grant: CheckedRun, devices: int, checkpoint: Path | None) -> CheckedRun:
    """Return what a run goes on with on the devices that are left. Raises InfeasibleError."""
    from meshwright.verbs.run.replan import replanned

    resolved = replanned(grant.resolved, devices, grant.options.output)
    return replace(grant, resolved=resolved, resume=checkpoint)


def _joined(
    resolved: Resolved, request: RunRequest, place: "Place | None", load_average: float, *, show: bool
) -> CompletedRun | None:
    """Train the ranks that a run under way lacks of a plan.

    A run under ``replan`` has all ranks itself and takes the devices that it lacks, until its end.
    """
    from meshwright.runtime.data.open_data import open_data
    from meshwright.runtime.progress.lossy_console import lossy_console
    from meshwright.runtime.recovery.members.run_members import join_run

    assert request.join is not None
    if place is not None:
        rule = f"{place.launcher} started this process, and those who join start ranks by themselves"
        raise InputError(Problem("join", request.join, rule, "start it without a launcher"))
    client, request, facts = joined(request)
    if request.options["on_fault"] == "replan":
        from meshwright.runtime.recovery.returned_devices import offer_devices

        offer_devices(client)
        return None
    grant = replace(check_run_request(resolved, request, None), resume=None)
    data = open_data(grant.options, _needs(grant.resolved))
    shrinkable = _shrinkable(grant, request, data, facts["base"])
    check_same_run(str(request.join), facts, shrinkable, data)
    training = replace(_training(grant, request, data), base=facts["base"])
    outcome = join_run(client, training, shrinkable, data, lossy_console() if show else None)
    return CompletedRun(grant, data.facts, outcome, grant.remarks, load_average)


def _shrinkable(
    grant: CheckedRun, request: RunRequest, data: "TrainingData", base: Mapping[str, object] | None
) -> "Shrinkable":
    """Return the trainings of other numbers of replicas."""
    return shrinkable_run(grant, lambda other: replace(_training(other, request, data), base=base))


def _base(grant: CheckedRun, request: RunRequest) -> dict[str, Any] | None:
    """Return the frozen base of a run: that of its checkpoint, or of a new run."""
    if grant.resume is None:
        return new_base(grant.resolved, request.initial, grant.options.seed)
    from meshwright.runtime.checkpoint.manifest import facts_of, read_manifest

    return base_of_checkpoint(facts_of(read_manifest(grant.resume)))


def _initial_remark(grant: CheckedRun, request: RunRequest) -> Iterator[str]:
    if grant.resume is not None and request.initial is not None:
        yield f"The weights of --init {request.initial} are not used: the run goes on with those of its checkpoint."


def _goes_on(training: "Training", data: "TrainingData") -> str:
    """Return a sentence on a run that resumes. Raise InputError where it may not."""
    from meshwright.runtime.checkpoint.compatibility import incompatibilities, plan_changes
    from meshwright.runtime.checkpoint.manifest import read_manifest
    from meshwright.runtime.training.resume import changed_options

    assert training.resume is not None
    manifest, job = read_manifest(training.resume), training.job
    problems = list(incompatibilities(manifest, job.program, job.model, job.precision))
    changed = attempted(lambda: changed_options(manifest, training.options, data.identity), problems)
    if problems:
        raise InputError(problems)
    text = f"Goes on from {training.resume}" + (f" with {', '.join(changed)}." if changed else ".")
    text = " ".join([text, *plan_changes(manifest, job.program)])
    if manifest.step >= training.options.steps:
        text += f" It has taken {manifest.step} steps already: with --steps {training.options.steps}, none is left."
    return text


def _check_installed() -> None:
    try:
        import meshwright.runtime.training.launch_training  # noqa: F401
    except ImportError as missing:
        rule = f"needs {missing.name}, which is not installed"
        raise InputError(Problem("run", missing.name, rule, "pip install 'meshwright[run]'")) from missing


def _needs(resolved: Resolved) -> "DataNeeds":
    from meshwright.runtime.data.encoder_input import encoder_input
    from meshwright.runtime.data.open_data import DataNeeds

    model, workload = resolved.setting.model, resolved.setting.workload
    path = Path(resolved.long.model)
    folder = path if path.is_dir() else path.parent if path.is_file() else None
    return DataNeeds(
        vocab=model.architecture.vocab,
        seq_len=workload.seq_len,
        global_batch=workload.global_batch,
        model_folder=folder,
        documents=workload.documents,
        encoder=encoder_input(model.architecture.encoder, workload.encoder_lengths),
    )


def _training(grant: CheckedRun, request: RunRequest, data: "TrainingData") -> "Training":
    from meshwright.runtime.executor.rank import Job
    from meshwright.runtime.training.job_and_outcome import LISTS, Training
    from meshwright.runtime.training.optimizer_values import optimizer_options

    plan, setting = grant.resolved.long, grant.resolved.setting
    written, lists = renamed(with_whole_paths(grant.resolved.short or plan), LISTS), plan.choice.written
    program = lower(plan, setting.model, setting.cluster, setting.workload, setting.stack)
    return Training(
        job=Job(
            program,
            setting.model,
            grant.precision,
            optimizer_options(grant.options),
            timeout_s=max(Job.timeout_s, 2 * (grant.options.hang_s or 0.0)),
            accelerated=not request.cpu,
            seed=grant.options.seed,
            rates=grant.options.rates,
            measures_arrivals=True,
        ),
        options=grant.options,
        utilisation=partial(utilisation_on, grant),
        initial=None if request.initial is None else Path(request.initial),
        resume=grant.resume,
        export=None if request.export is None else Path(request.export),
        config=_config(plan.model) if request.export else None,
        plan=dump_plan(written),
        lists=lists.text if lists and lists.file else "",
        facts={
            "plan": written.to_data(),
            "model": model_columns(setting.model.architecture),
            "precision": grant.precision,
            "options": grant.options.to_json(),
            "data": dict(data.facts),
        },
    )


def _config(model: str) -> dict[str, Any]:
    """Return the model's own configuration, for loaders of the weights."""
    return {name: value for name, value in load_config(model).items() if not name.startswith("_")}
