"""Train a plan on this host, or as the rank that a launcher made of this process."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import InputError, Problem, attempted
from meshwright.model.load import load_config
from meshwright.plan.files import dump_plan
from meshwright.plan.resolve import Resolved
from meshwright.plan.written_lists import renamed
from meshwright.program.lower import lower
from meshwright.validation.model_columns import model_columns
from meshwright.verbs.run_checks import Granted, Wish, granted
from meshwright.verbs.trained import Trained, utilisation_on
from meshwright.verbs.whole_paths import with_whole_paths

if TYPE_CHECKING:
    from meshwright.runtime.data.opening import DataNeeds, TrainingData
    from meshwright.runtime.training.outcome import Training


def trained(resolved: Resolved, wish: Wish, *, show: bool = False) -> Trained | None:
    """Train a legal plan; None on launched ranks other than the first.

    ``show``: rank 0 tells on standard error how it goes. Raises InputError with all problems, and RunError naming the
    rank.
    """
    _check_installed()
    from meshwright.runtime.data.opening import open_data
    from meshwright.runtime.launch.environment import launched_place
    from meshwright.runtime.training.resume import told_of_kept
    from meshwright.runtime.training.start import start

    place, load_average = launched_place(os.environ), os.getloadavg()[0]
    grant = granted(resolved, wish, place)
    data = open_data(grant.options, _needs(grant.resolved))
    training = _training(grant, wish, data)
    remarks = [*grant.remarks, *data.remarks, *_told_of_initial(grant, wish)]
    if grant.resume is not None:
        training = replace(training, goes_on=_goes_on(training, data))
        remarks += told_of_kept(grant.options)
    outcome = start(training, data, place, remarks if show else None)
    if outcome is None:
        return None
    if outcome.export is not None and data.tokenizer is not None:
        shutil.copy(data.tokenizer, outcome.export)
    remarks += [training.goes_on] if training.goes_on else []
    return Trained(grant, data.facts, outcome, tuple(remarks), load_average)


def _told_of_initial(grant: Granted, wish: Wish) -> Iterator[str]:
    if grant.resume is not None and wish.initial is not None:
        yield f"The weights of --init {wish.initial} are not used: the run goes on with those of its checkpoint."


def _goes_on(training: "Training", data: "TrainingData") -> str:
    """What is told of a run that goes on. Raises InputError where it may not."""
    from meshwright.runtime.checkpoint.manifest import read_manifest
    from meshwright.runtime.checkpoint.plan_facts import misfits
    from meshwright.runtime.training.resume import changed_options

    assert training.resume is not None
    manifest, job = read_manifest(training.resume), training.job
    problems = list(misfits(manifest, job.program, job.model, job.precision))
    changed = attempted(lambda: changed_options(manifest, training.options, data.identity), problems)
    if problems:
        raise InputError(problems)
    told = f"Goes on from {training.resume}" + (f" with {', '.join(changed)}." if changed else ".")
    if manifest.step >= training.options.steps:
        told += f" It has taken {manifest.step} steps already: with --steps {training.options.steps}, none is left."
    return told


def _check_installed() -> None:
    try:
        import meshwright.runtime.training.start  # noqa: F401
    except ImportError as missing:
        rule = f"needs {missing.name}, which is not installed"
        raise InputError(Problem("run", missing.name, rule, "pip install 'meshwright[run]'")) from missing


def _needs(resolved: Resolved) -> "DataNeeds":
    from meshwright.runtime.data.opening import DataNeeds

    model, workload = resolved.setting.model, resolved.setting.workload
    path = Path(resolved.long.model)
    folder = path if path.is_dir() else path.parent if path.is_file() else None
    return DataNeeds(
        vocab=model.architecture.vocab,
        seq_len=workload.seq_len,
        global_batch=workload.global_batch,
        model_folder=folder,
        documents=workload.documents,
    )


def _training(grant: Granted, wish: Wish, data: "TrainingData") -> "Training":
    from meshwright.runtime.rank import Job
    from meshwright.runtime.training.outcome import LISTS, Training
    from meshwright.runtime.training.train import optimizer_options

    plan, setting = grant.resolved.long, grant.resolved.setting
    written, lists = renamed(with_whole_paths(grant.resolved.short or plan), LISTS), plan.choice.written
    program = lower(plan, setting.model, setting.cluster, setting.workload, setting.stack)
    return Training(
        job=Job(
            program,
            setting.model,
            grant.precision,
            optimizer_options(grant.options),
            accelerated=not wish.cpu,
        ),
        options=grant.options,
        utilisation=partial(utilisation_on, grant),
        initial=None if wish.initial is None else Path(wish.initial),
        resume=grant.resume,
        export=None if wish.export is None else Path(wish.export),
        config=_config(plan.model) if wish.export else None,
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
    """The model's own configuration, for those who load the weights."""
    return {name: value for name, value in load_config(model).items() if not name.startswith("_")}
