"""``meshwright run``: train a plan; ``--emulate`` executes its step at modelled times on this machine."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.cli.options import run_options as of
from meshwright.cli.options.shared_options import AsJson, Debug, PlanFile
from meshwright.cli.terminal.answer import Answer
from meshwright.cli.terminal.output import (
    check_writable,
    errors_as_messages,
    print_answer,
    print_json,
    write_whole,
)
from meshwright.cli.terminal.progress import ProgressLine
from meshwright.errors import InputError, Problem

if TYPE_CHECKING:
    from meshwright.verbs.measure import Progress

SHARED = ("plan", "set_", "set", "emulate", "as_json", "debug")
EMULATION = ("ranks", "limit", "trace")
STARTING = ("precision", "initial", "export", "resume", "join", "cpu", "force")
"""Options for the begin and end of a run; the others are training options."""
NAMES = {
    "warmup_steps": "warmup",
    "evaluate_every": "eval-every",
    "checkpoint_buffer_gib": "checkpoint-buffer",
    "keep_last": "keep",
    "initial": "init",
    "output": "out",
    "weights": "init",
    "folder": "export",
}
"""Options whose names on the command line are shorter, and names of what is read and written."""
REPEATABLE = ("data", "inject")
WRITTEN = ("weights", "folder")


def run(
    plan: PlanFile,
    steps: of.Steps = None,
    data: of.Data = None,
    tokenizer: of.Tokenizer = None,
    end_of_document: of.EndOfDocument = None,
    mask_document_starts: of.MaskDocumentStarts = False,
    cache: of.Cache = None,
    lr: of.LearningRate = None,
    schedule: of.Schedule = None,
    warmup_steps: of.Warmup = None,
    lr_floor: of.Floor = None,
    decay_steps: of.DecaySteps = None,
    beta1: of.Beta1 = None,
    beta2: of.Beta2 = None,
    eps: of.Epsilon = None,
    weight_decay: of.WeightDecay = None,
    clip: of.Clip = None,
    seed: of.Seed = None,
    precision: of.Precision = None,
    evaluate_every: of.EvaluateEvery = None,
    held_out: of.HeldOut = None,
    output: of.Output = None,
    checkpoint_every: of.CheckpointEvery = None,
    checkpoint_async: of.CheckpointAsync = False,
    checkpoint_buffer_gib: of.CheckpointBuffer = None,
    checkpoint_local: of.CheckpointLocal = None,
    keep_last: of.Keep = None,
    keep_every: of.KeepEvery = None,
    inject: of.Inject = None,
    hash_every: of.HashEvery = None,
    hang_s: of.HangS = None,
    on_fault: of.OnFault = None,
    max_restarts: of.MaxRestarts = None,
    listen: of.Listen = None,
    join: of.Join = None,
    tensorboard: of.TensorBoard = False,
    prometheus: of.Prometheus = None,
    resume: of.Resume = None,
    initial: of.Initial = None,
    export: of.Export = None,
    cpu: of.Cpu = False,
    force: of.Force = False,
    set_: of.Settings = None,
    emulate: of.Emulate = False,
    ranks: of.Ranks = None,
    limit: of.Limit = None,
    trace: of.Trace = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Train a plan on this host, or under torchrun or Slurm; or emulate its step. Exits with 1 if a rank fails."""
    named = {name: value for name, value in locals().items() if value is not None and value is not False}
    with errors_as_messages(as_json, debug):
        own = {name: value for name, value in named.items() if name not in SHARED}
        refuse_other_kind(own, emulate)
        if emulate:
            _emulate(plan, set_ or [], ranks, limit, trace, as_json)
        else:
            _train(plan, set_ or [], own, as_json)


def refuse_other_kind(own: Mapping[str, object], emulate: bool) -> None:
    """Raise InputError for options of the other kind of run."""
    rule = "says how to train, and --emulate trains nothing" if emulate else "is for --emulate"
    problems = [
        Problem(_spelled(name), _typed(value), rule, "leave it out" if emulate else "add --emulate")
        for name, value in own.items()
        if (name in EMULATION) != emulate
    ]
    if problems:
        raise InputError(problems)


def by_field(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the given options by field name: training options, and those for the begin and end of a run."""
    fields = {name.replace("-", "_"): field for field, name in NAMES.items() if field not in WRITTEN}
    given = {
        fields.get(name, name): value
        for name, value in options.items()
        if name not in SHARED and value is not None and value is not False
    }
    return given, {name: given.pop(name) for name in STARTING if name in given}


def _typed(value: object) -> object:
    """Return a value as it was typed."""
    return str(value) if isinstance(value, Path) else value


def _spelled(name: str) -> str:
    return "--" + NAMES.get(name, name).replace("_", "-")


@contextmanager
def options_named() -> Iterator[None]:
    """Rename the fields of problems to the options that people typed; those of the plan keep their names."""
    try:
        yield
    except InputError as error:
        options = {*signature(run).parameters, *WRITTEN} - {*SHARED, *EMULATION}
        raise InputError(
            replace(problem, field=_spelled(problem.field)) if problem.field in options else problem
            for problem in error.problems
        ) from None


def _train(plan: str, settings: list[str], own: dict[str, Any], as_json: bool) -> None:
    from meshwright import api

    starting = {name: own.pop(name) for name in STARTING if name in own}
    own |= {name: tuple(own[name]) for name in REPEATABLE if name in own}
    with options_named():
        found = api.run(plan, options=own, settings=settings, show=not as_json, **starting)
    if found is None:
        return
    if as_json:
        print_json(found.to_json())
    else:
        from meshwright.present.runs.training_run import render_trained

        render_trained(found.to_json())


def _emulate(
    plan: str, settings: list[str], ranks: int | None, limit: float | None, trace: Path | None, as_json: bool
) -> None:
    from meshwright.cli.terminal.launcher_ranks import is_first

    if is_first():  # emulation starts its own ranks
        print_answer(emulated_answer(plan, settings, ranks, limit, trace, ProgressLine()), as_json)


def emulated_answer(
    plan: str | Path,
    settings: Iterable[str],
    ranks: int | None,
    limit: float | None,
    trace: str | Path | None,
    progress: "Progress | None" = None,
) -> Answer:
    """Emulate a plan's step, and write its trace."""
    import json

    from meshwright import api
    from meshwright.present.runs.emulated_step import render_emulated

    if trace:
        check_writable(Path(trace), "trace")
    found = api.emulate(plan, ranks=ranks, limit_s=limit, settings=settings, progress=progress)
    if trace:
        write_whole(Path(trace), json.dumps(found.trace(), allow_nan=False))
    return Answer(
        found.to_json(),
        lambda data: render_emulated(data, str(trace) if trace else None),
        remarks=found.report.remarks,
    )
