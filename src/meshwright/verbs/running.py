"""Train a plan on this host, or as the rank that a launcher made of this process."""

import os
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import InputError, Problem
from meshwright.model.load import load_config
from meshwright.plan.files import Plan, dump_plan
from meshwright.plan.resolve import Resolved
from meshwright.program.lower import lower
from meshwright.verbs.run_checks import Granted, Wish, granted
from meshwright.verbs.trained import Trained, utilisation_on

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
    from meshwright.runtime.training.resume import changed_options
    from meshwright.runtime.training.start import start

    place = launched_place(os.environ)
    grant = granted(resolved, wish, place)
    data = open_data(grant.options, _needs(grant.resolved))
    remarks = list(grant.remarks)
    if grant.resume is not None:
        changed = ", ".join(changed_options(grant.resume, grant.options, data.identity))
        remarks.append(f"Goes on from {grant.resume}" + (f" with {changed}." if changed else "."))
    outcome = start(_training(grant, wish, data), data, place, remarks if show else None)
    if outcome is None:
        return None
    if outcome.export is not None and data.tokenizer is not None:
        shutil.copy(data.tokenizer, outcome.export)
    return Trained(grant, data.facts, outcome, tuple(remarks))


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
    )


def _training(grant: Granted, wish: Wish, data: "TrainingData") -> "Training":
    from meshwright.runtime.rank import Job
    from meshwright.runtime.training.outcome import Training
    from meshwright.runtime.training.train import optimizer_options

    plan, setting = grant.resolved.long, grant.resolved.setting
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
        plan=dump_plan(_portable(grant)),
        facts={
            "plan": _portable(grant).to_data(),
            "precision": grant.precision,
            "options": grant.options.to_json(),
            "data": dict(data.facts),
        },
    )


def _config(model: str) -> dict[str, Any]:
    """The model's own configuration, for those who load the weights."""
    return {name: value for name, value in load_config(model).items() if not name.startswith("_")}


def _portable(grant: Granted) -> Plan:
    """The plan with whole paths in place of those that are meant from its folder."""
    plan = grant.resolved.short or grant.resolved.long
    found = {
        name: str(Path(getattr(plan, name)).resolve())
        for name in ("model", "cluster", "stack")
        if Path(getattr(plan, name)).exists()
    }
    return plan.model_copy(update=found)
