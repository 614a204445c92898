"""The verbs that describe, plan, predict, compare, check and export, as functions."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from meshwright import api
from meshwright.cli.options.framework_file_options import import_request
from meshwright.cli.schedule import answered, refuse_unused
from meshwright.cli.terminal.answer import Answer
from meshwright.cli.terminal.calibration_answer import calibrated
from meshwright.cli.terminal.import_answer import imported
from meshwright.cli.terminal.notebook_progress import notebook_progress
from meshwright.cli.terminal.output import write_tree, write_whole
from meshwright.cli.terminal.report_answer import reported
from meshwright.cli.terminal.search_answer import planned, several
from meshwright.cli.terminal.validation_answer import validated
from meshwright.errors import InputError, Problem
from meshwright.present.catalogue_tables import render_devices, render_models, render_stacks
from meshwright.present.description import render_description
from meshwright.present.exported_files import render_export
from meshwright.present.plan_answers.check_result import render_check
from meshwright.present.plan_answers.comparison import render_comparison
from meshwright.present.plan_answers.prediction import render_report
from meshwright.present.plan_answers.serving_tables import render_any_explanation, render_serving_report
from meshwright.python_api.paths import PathLike, check_all, paths_of, text_of
from meshwright.result import ServingReport
from meshwright.verbs.catalogue import list_devices, list_models, list_stacks
from meshwright.verbs.describe_checkpoint import describe_checkpoint, is_checkpoint
from meshwright.verbs.load_plan import refuse_training_options

Constants = PathLike | Mapping[str, float]
UNWRITTEN = "(not written)"


def plan(
    model: str | Iterable[str],
    *,
    on: str | Iterable[str],
    seq_len: int | None = None,
    global_batch: int | None = None,
    batch_range: str | None = None,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    concurrency: int | None = None,
    rate: float | None = None,
    max_ttft_ms: float | None = None,
    max_tpot_ms: float | None = None,
    allow_quantise: str | Iterable[str] | None = None,
    stack: str | None = None,
    precision: str = "bf16",
    fp8_recipe: str | None = None,
    optimizer: str | Mapping[str, Any] = "adamw",
    adapter: str | Mapping[str, Any] | None = None,
    documents: str | Iterable[int] | None = None,
    encoder_tokens: int | None = None,
    images: str | Mapping[str, int] | None = None,
    routing: str | float | None = None,
    capacity: str | float | Mapping[str, Any] | None = None,
    task: str = "pretrain",
    keep: Iterable[str] | None = None,
    forbid: Iterable[str] | None = None,
    allow: Iterable[str] | None = None,
    top: int = 5,
    stages: str = "balanced",
    layers: Literal["auto", "uniform", "ranges"] = "auto",
    schedule: str | None = None,
    recommend: Literal["robust", "fastest"] = "robust",
    solve: float | None = None,
    solve_steps: int | None = None,
    seed: int | None = None,
    objective: str | None = None,
    tokens: str | int | None = None,
    budget: float | None = None,
    deadline: float | None = None,
    power: float | None = None,
    sure: float | None = None,
    price: str = "on-demand",
    assume: Iterable[str] | None = None,
    constants: Constants | None = None,
    calibration: PathLike | None = None,
    why: bool = False,
    output: PathLike | None = None,
    csv: PathLike | None = None,
    markdown: PathLike | None = None,
    report: PathLike | None = None,
) -> Answer:
    """Search the best plans of a model on a cluster; of several models, those of the largest within the limits.

    ``input_tokens`` and ``output_tokens`` in place of ``seq_len`` ask for plans that serve (``docs/serving.md``).
    ``budget`` in US dollars, ``deadline`` in days, ``power`` in kW; ``sure`` is the probability with which they must
    hold. ``recommend``: "robust" for the plan with the least regret, "fastest" for the least predicted time.
    ``constants`` of the cost model by name, as a file or a mapping. ``why``: the answer prints every reason, plan and
    count, not the summary. ``report``: a page about the recommended plan, or with the reasons where there is none.
    """
    given = locals()
    with notebook_progress() as progress:
        return planned(given, progress)


def describe(name: str, *, long: bool = False, seq_len: int = 4096, plan: Iterable[PathLike] = ()) -> Answer:
    """Return a model, cluster, stack or plan with every default, or a checkpoint and whether each ``plan`` loads it."""
    return Answer(api.describe(name, long=long, seq_len=seq_len, plans=paths_of(plan)), render_description)


def models(search: str | None = None) -> Answer:
    """Return the models that come with Meshwright; those whose name, family or hub repository contains a text."""
    return Answer({"models": list_models(search)}, render_models)


def devices(search: str | None = None) -> Answer:
    """Return the devices of the catalogue; those whose id or vendor contains a text."""
    return Answer({"devices": list_devices(search)}, render_devices)


def stacks(search: str | None = None) -> Answer:
    """Return the stacks; those whose name, or a target of their exports, contains a text."""
    return Answer({"stacks": list_stacks(search)}, render_stacks)


def predict(
    plan: PathLike,
    *,
    set: Iterable[str] = (),
    trace: PathLike | None = None,
    stage_times: PathLike | None = None,
    csv: PathLike | None = None,
    tokens: str | int | None = None,
    assume: Iterable[str] = (),
    price: str = "on-demand",
    constants: Constants | None = None,
    calibration: PathLike | None = None,
    steps: int | None = None,
    lr: float | None = None,
    schedule: str | None = None,
    warmup: int | None = None,
    lr_floor: float | None = None,
) -> Answer:
    """Predict step time, memory, money and energy of a plan file; ``set`` changes it first, as ``tp=4``.

    ``steps`` and the options of the learning rate are those of a run, for rules of periods of ``synchronise``.
    """
    rates = {
        "steps": steps,
        "lr": lr,
        "schedule": schedule,
        "warmup_steps": warmup,
        "lr_floor": lr_floor,
    }
    settings = several(set)
    check_all({"trace": trace, "stage-times": stage_times, "csv": csv})
    changed: dict[str, Any] = {"settings": settings, "constants": constants}
    report = api.predict(
        plan,
        tokens=tokens,
        assume=several(assume),
        price=price,
        calibration=calibration,
        run=rates,
        **changed,
    )
    if isinstance(report, ServingReport):
        refuse_training_options({"trace": trace, "stage_times": stage_times, "csv": csv})
        return Answer(report.to_json(), render_serving_report, report.fits, report.remarks)
    if trace:
        write_whole(Path(trace), json.dumps(api.trace(plan, **changed), allow_nan=False))
    if stage_times:
        write_whole(Path(stage_times), api.stage_times(plan, str(stage_times), **changed))
    if csv:
        write_whole(Path(csv), api.lists(plan, **changed))
    return Answer(
        report.to_json(),
        lambda data: render_report(data, text_of(trace), text_of(stage_times)),
        report.fits,
        report.remarks,
    )


def compare(
    a: PathLike,
    b: PathLike,
    *,
    tokens: str | int | None = None,
    assume: Iterable[str] = (),
    price: str = "on-demand",
    constants: Constants | None = None,
    calibration: PathLike | None = None,
) -> Answer:
    """Compare two plan files, with ``tokens`` their trainings too, or a plan's prediction with a Kineto trace of it."""
    terms: dict[str, Any] = {"tokens": tokens, "assume": several(assume), "price": price}
    found = api.compare(a, b, constants=constants, calibration=calibration, **terms)
    return Answer(found, lambda data: render_comparison(data, str(a), str(b)))


def explain(
    plan: PathLike,
    *,
    against: PathLike | None = None,
    each: str | None = None,
    constants: Constants | None = None,
    calibration: PathLike | None = None,
) -> Answer:
    """Explain a plan's cost and what changes the answer; or its difference from ``against``; or ``each`` value."""
    with notebook_progress() as progress:
        found = api.explain(
            plan, against=against, each=each, constants=constants, calibration=calibration, progress=progress
        )
    data = found.to_json()
    return Answer(
        data,
        lambda data: render_any_explanation(data, str(plan), text_of(against)),
        found.fits,
        data["predict"]["remarks"],
    )


def report(
    plan: PathLike,
    *,
    against: PathLike | Iterable[PathLike] = (),
    tokens: str | int | None = None,
    assume: Iterable[str] = (),
    price: str = "on-demand",
    constants: Constants | None = None,
    no_search: bool = False,
    output: PathLike | None = None,
) -> Answer:
    """Write a page about a plan file; the answer has its data. ``output``: by default the plan's name with ``.html``.

    ``against``: plan files, or "recommended", to compare it with. ``no_search``: without the plans around it.
    """
    given = locals()

    with notebook_progress() as progress:
        return reported(given, progress)


def export(
    plan: PathLike,
    *,
    to: str,
    output: PathLike | None = None,
    launcher: str = "sbatch",
    check: str | None = None,
    python: PathLike | None = None,
) -> Answer:
    """Export a plan as files of a framework; ``check`` is "parser" or "dry", by the interpreter ``python``."""
    data = api.export(plan, to=to, launcher=launcher, check=check, python=text_of(python))
    if output:
        write_tree(Path(output), data["files"])
    accepted = "check" not in data or bool(data["check"]["accepted"])
    return Answer(data, lambda data: render_export(data, str(output or UNWRITTEN)), accepted)


def import_file(
    file: PathLike,
    *,
    model: str | None = None,
    on: str | None = None,
    seq_len: int | None = None,
    global_batch: int | None = None,
    stack: str | None = None,
    from_: str | None = None,
    variable: Iterable[str] = (),
    output: PathLike | None = None,
) -> Answer:
    """Read another framework's file as a plan; its values give way to the keywords."""
    request = import_request(model, on, seq_len, global_batch, stack, from_, several(variable))
    return imported(file, request, None if output is None else Path(output))


def check(
    file: PathLike,
    *,
    model: str | None = None,
    on: str | None = None,
    seq_len: int | None = None,
    global_batch: int | None = None,
    stack: str | None = None,
    from_: str | None = None,
    variable: Iterable[str] = (),
    constants: Constants | None = None,
    plan: Iterable[PathLike] = (),
) -> Answer:
    """Check a plan or another framework's file: errors, memory, distance from the best plan, corrections.

    Of a checkpoint: its digests, and whether each ``plan`` can go on from it.
    """
    if is_checkpoint(file):
        data = describe_checkpoint(Path(file), paths_of(plan), check=True)
        sound = not data["problems"] and all(one["loads"] for one in data["plans"])
        return Answer(data, render_description, sound)
    request = import_request(model, on, seq_len, global_batch, stack, from_, several(variable))
    found = api.check(file, request, constants)
    return Answer(found.to_json(), render_check, found.ok)


def validate(
    runs: PathLike, *, calibration: PathLike | None = None, picture: PathLike | None = None
) -> Answer:
    """Predict the measured runs of a CSV file and return the errors."""
    check_all({"picture": picture})
    return validated(runs, calibration, picture)


def calibrate(runs: PathLike, *, on: str | None = None, output: PathLike | None = None) -> Answer:
    """Fit a cluster's constants or serving's levels to runs; ``ok`` is False where this does not reduce the error."""
    check_all({"output": output})
    return calibrated(runs, on, output)


def schedule(
    *names: str,
    stages: int | None = None,
    micro_batches: int | None = None,
    chunks: int | None = None,
    times: str | None = None,
    stage_times: str | None = None,
    memory_limit: float | str | Iterable[float] | None = None,
    unit: int | None = None,
    placement: str | None = None,
    time_budget: float | None = None,
    method: str | None = None,
    seed: int | None = None,
    from_: str | None = None,
    graph: str | None = None,
    memory: float | None = None,
    csv: PathLike | None = None,
    svg: PathLike | None = None,
) -> Answer:
    """Play a pipeline schedule; "compare" and several, "list" for all, "auto" for the shortest that is found.

    ``times``: F,I,W,COMM of a micro-batch; ``memory`` in GiB; ``time_budget`` in seconds.
    """
    given: dict[str, Any] = {"stages": stages, "micro_batches": micro_batches, "chunks": chunks}
    given |= {"times": times, "stage_times": stage_times, "memory_limit": memory_limit, "unit": unit}
    search_options = {"placement": placement, "time_budget": time_budget, "method": method, "seed": seed}
    branches = {"graph": graph, "memory": memory}
    files = {name: Path(path) for name, path in (("csv", csv), ("svg", svg)) if path}
    check_all(files)
    if not names:
        raise InputError(Problem("NAME", None, "a schedule is needed", "'1f1b', or 'list' for all"))
    refuse_unused(names, given, search_options, branches, from_, files)
    return Answer(*answered(names, given, search_options, branches, from_, files))
