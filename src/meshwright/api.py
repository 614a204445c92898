"""The verbs as functions: predictor and runtime meet here only; the command line renders the results.

Names and paths in, JSON-ready data or frozen values out. Raises InputError (all problems) or InfeasibleError (reasons).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import InputError
from meshwright.plans.files.validation_messages import validated
from meshwright.plans.files.yaml_text import read_file
from meshwright.plans.forms.short import (
    AdapterSpec,
    CapacitySpec,
    ImagesSpec,
    OptimizerSpec,
    RoutingSpec,
    ShortPlan,
    WorkloadSpec,
)
from meshwright.result import Report
from meshwright.verbs.load_plan import PlanSource
from meshwright.verbs.load_plan import load as load
from meshwright.verbs.predict.predict_plan import check_playable
from meshwright.workload.optimizer_choice import DEFAULT_OPTIMIZER

if TYPE_CHECKING:
    from meshwright.calibration.calibrate_cluster import ClusterCalibration
    from meshwright.calibration.calibrate_serving import ServingCalibration
    from meshwright.cost.constants_file import Given
    from meshwright.explanation.choice_comparison import ChoiceComparison
    from meshwright.explanation.explanation_result import Explanation
    from meshwright.explanation.plan_comparison import PlanComparison
    from meshwright.explanation.serving.serving_explanation import ServingExplanation
    from meshwright.validation.serving.validate_serving import ServingValidation
    from meshwright.validation.validate_runs import Validation
    from meshwright.verbs.calibrate import Calibrated
    from meshwright.verbs.check import Checked
    from meshwright.verbs.checkpoint_conversion import ConvertedFormat
    from meshwright.verbs.convert import Converted, ConvertRequest
    from meshwright.verbs.import_ import Imported, ImportRequest
    from meshwright.verbs.ingest import Ingested
    from meshwright.verbs.launch.launch_plan import Launch
    from meshwright.verbs.launch.launch_request import LaunchRequest
    from meshwright.verbs.measure import Measured, Progress
    from meshwright.verbs.plan.clusters.choose_cluster import Choice
    from meshwright.verbs.plan.clusters.choose_model import ModelChoice
    from meshwright.verbs.plan.layers.range_answer import Layers
    from meshwright.verbs.plan.recommendation import Recommend
    from meshwright.verbs.plan.solver_schedules import SolverOptions
    from meshwright.verbs.probe.probe_jobs import Probes
    from meshwright.verbs.run.emulate import Emulated
    from meshwright.verbs.run.training_report import CompletedRun
    from meshwright.verbs.schedule.compare_schedules import Compared
    from meshwright.verbs.schedule.named_schedules import Scheduled
    from meshwright.verbs.schedule.schedule_request import ScheduleRequest
    from meshwright.verbs.schedule.solve_chain import ScheduleSearchOptions, Solved
    from meshwright.verbs.schedule.solve_graph import GraphScheduleRequest, PlayedGraph, SolvedGraph
    from meshwright.verbs.verify import ComparedModels, Verified


def describe(
    name: str, *, long: bool = False, seq_len: int = 4096, plans: Iterable[str | Path] = ()
) -> dict[str, Any]:
    """Return a model, cluster, stack, plan (``long``: in its long form) or checkpoint, and which ``plans`` read it."""
    from meshwright.verbs.describe import describe_anything

    return describe_anything(name, long=long, seq_len=seq_len, plans=tuple(plans))


def plan(
    model: str | Iterable[str],
    *,
    on: str | Iterable[str],
    seq_len: int,
    global_batch: int | None = None,
    batch_range: str | None = None,
    stack: str = "megatron-core",
    precision: str = "bf16",
    fp8_recipe: str | None = None,
    optimizer: str | OptimizerSpec = DEFAULT_OPTIMIZER,
    adapter: AdapterSpec | None = None,
    task: str = "pretrain",
    objective: str = "throughput",
    budget_usd: float | None = None,
    deadline_days: float | None = None,
    power_kw: float | None = None,
    sure: float | None = None,
    price: str = "on-demand",
    keep: Iterable[str] = (),
    forbid: Iterable[str] = (),
    allow: Iterable[str] = (),
    top: int = 5,
    stages: str = "balanced",
    layers: "Layers" = "auto",
    schedule: str | None = None,
    solving: "SolverOptions | None" = None,
    recommend: "Recommend" = "robust",
    documents: Iterable[int] | None = None,
    encoder_tokens: int | None = None,
    images: ImagesSpec | None = None,
    routing: RoutingSpec | None = None,
    capacity: float | CapacitySpec | None = None,
    tokens: str | int | None = None,
    assume: Iterable[str] = (),
    constants: "Given | None" = None,
    progress: "Progress | None" = None,
) -> "Choice | ModelChoice":
    """Search the best plans for a model on a cluster, or for each of several models.

    ``on``: one cluster or several, "h100-sxm-80gb x <=256" for any number of devices up to that, a price list. Of them
    the best by ``objective`` within ``budget_usd``, ``deadline_days`` and ``power_kw``, which hold with the probability
    ``sure``. ``keep``: choices that are fixed, as "tp=8", ``forbid``: values that are excluded; ``allow=["dtypes"]``
    searches element types of states too. ``schedule``: "auto" for all of the stack, or names; ``stages``: "balanced",
    or cut by "time" or "memory". ``layers``: "uniform", "ranges" or "auto", ranges where nothing else fits.
    ``recommend``: "robust" orders plans by regret, "fastest" by predicted time.
    ``batch_range``: "448..576", to choose the global batch from. ``solving``: how long a solver looks for better lists;
    ``progress`` hears how far the search is. Others are as of a plan or ``predict``. Raises InfeasibleError.
    """
    given = dict(locals())
    from meshwright.economy.budget_and_deadline import Limits
    from meshwright.verbs.plan.clusters.batch_choice import batch_or_range
    from meshwright.verbs.plan.clusters.choose_cluster import choose
    from meshwright.verbs.plan.clusters.choose_model import choose_model
    from meshwright.verbs.plan.clusters.cluster_request import ClusterChoiceRequest
    from meshwright.verbs.plan.plan_on_cluster import PlanRequest

    batches, named = batch_or_range(global_batch, batch_range), (on,) if isinstance(on, str) else tuple(on)
    given["global_batch"] = global_batch if batches is None else batches.high
    workload = {name: given[name] for name in WorkloadSpec.model_fields if name in given}
    workload["documents"] = None if documents is None else tuple(documents)
    models = (model,) if isinstance(model, str) else tuple(dict.fromkeys(model))
    cluster, allowed = ", ".join(named), tuple(dict.fromkeys(allow))
    choices = (tuple(keep), top, stages, schedule, solving, tuple(forbid), recommend, allowed, layers)
    header = {"plan": 1, "cluster": cluster, "workload": workload, "stack": stack}
    asked = [validated(ShortPlan, {**header, "model": one}) for one in models]
    questions = [PlanRequest(header, *choices) for header in asked]
    limits, terms = Limits(budget_usd, deadline_days, power_kw, sure), (tokens, tuple(assume), price)
    request = ClusterChoiceRequest(named, objective, limits, *terms, batches, constants)
    if len(questions) == 1:
        return choose(questions[0], request, progress)
    return choose_model(questions, request, progress)


def predict(
    path: PlanSource,
    *,
    settings: Iterable[str] = (),
    tokens: str | int | None = None,
    assume: Iterable[str] = (),
    price: str = "on-demand",
    constants: "Given | None" = None,
    calibration: str | Path | None = None,
    run: Mapping[str, object] | None = None,
) -> Report:
    """Predict a plan file as a Report; ``settings`` change it first, as ``tp=4``.

    ``tokens`` of a whole training: "15T". ``assume``: what nobody else says, as ``restart_s=300``; ``price``: the term.
    ``constants`` of the cost model by name, as a file or a mapping (``cost/constants_file.py``). ``calibration``: a
    file of levels, for plans that serve. ``run``: options of a run, as ``steps`` and ``lr``, for rules of periods.
    """
    from meshwright.verbs.predict.request_report import predicted_any

    return predicted_any(path, settings, constants, (tokens, assume, price), calibration, run)


def trace(
    path: PlanSource, *, settings: Iterable[str] = (), constants: "Given | None" = None
) -> dict[str, Any]:
    """Return the simulated step of a plan as a Chrome trace (JSON-ready), one process per pipeline rank."""
    from meshwright.simulate.chrome_trace import perfetto_trace
    from meshwright.simulate.plan_estimate import lower_and_simulate

    resolved = load(path, settings, constants)
    check_playable(resolved)
    return perfetto_trace(*lower_and_simulate(resolved.long, resolved.setting))


def lists(path: PlanSource, *, settings: Iterable[str] = (), constants: "Given | None" = None) -> str:
    """Return the passes of a plan's lists as CSV, a line per pipeline rank, with those of a spread vocabulary."""
    from meshwright.schedules.action import PASS_KINDS
    from meshwright.schedules.custom.csv_file import format_csv
    from meshwright.simulate.plan_estimate import lower_and_simulate

    resolved = load(path, settings, constants)
    check_playable(resolved)
    program, _ = lower_and_simulate(resolved.long, resolved.setting)
    return format_csv(
        [[action for action in actions if action.kind in PASS_KINDS] for actions in program.lists]
    )


def emulate(
    path: str | Path,
    *,
    ranks: int | None = None,
    limit_s: float | None = None,
    settings: Iterable[str] = (),
    progress: "Progress | None" = None,
) -> "Emulated":
    """Emulate a plan's step with the real interpreter on local processes, and compare it with the simulated step.

    ``ranks`` processes, by default one for each pipeline rank; at most ``limit_s``. Raises RunError for a deadlock.
    """
    from meshwright.verbs.run.emulate import LIMIT_S, emulated

    return emulated(load(path, settings), ranks, LIMIT_S if limit_s is None else limit_s, progress)


def compare(
    a: str | Path,
    b: str | Path,
    *,
    tokens: str | int | None = None,
    assume: Iterable[str] = (),
    price: str = "on-demand",
    constants: "Given | None" = None,
    calibration: str | Path | None = None,
) -> dict[str, Any]:
    """Compare two plans line by line, in content and prediction, or a plan with a trace; options as of ``predict``."""
    from meshwright.explanation.file_comparison import compared_files

    return compared_files(a, b, (tokens, assume, price), constants, calibration)


def explain(
    path: PlanSource,
    *,
    against: PlanSource | None = None,
    each: str | None = None,
    constants: "Given | None" = None,
    calibration: str | Path | None = None,
    progress: "Progress | None" = None,
) -> "Explanation | PlanComparison | ChoiceComparison | ServingExplanation":
    """Why a plan costs what it costs, and what would change the answer; or why it differs from the plan ``against``.

    ``against`` is a plan file, or "recommended" for the plan that ``plan`` recommends for the same question; ``each``
    is a choice of which all values are compared instead.
    Raises InputError for a plan that only minutes of playing would price, and for two that do not compare.
    """
    from meshwright.explanation.explain_request import answer_explain

    return answer_explain(path, against, each, constants, progress, calibration)


def export(
    path: PlanSource,
    *,
    to: str,
    launcher: str = "sbatch",
    check: str | None = None,
    python: str | None = None,
) -> dict[str, Any]:
    """Files with which a framework runs a plan: ``{"files": {path: text}, "refused": […]}``.

    Plans that serve go to engines, which no launcher starts; ``launcher`` starts the others on all nodes. ``check``
    asks the target itself in the interpreter ``python`` (this one by default) and adds what it says: "parser" hands
    the files to its parser, "dry" has it take a step of the plan without devices and holds that against the plan.
    """
    from meshwright.verbs.export_plan import exported

    return exported(path, to, launcher, check, python)


def launch(path: PlanSource, request: "LaunchRequest") -> "Launch":
    """Return the files of a job that runs a plan on a cluster; InfeasibleError where a schema refuses one."""
    from meshwright.verbs.launch.launch_plan import prepared

    return prepared(path, request)


def import_file(path: str | Path, wanted: "ImportRequest") -> "Imported":
    """Another framework's file as a plan. Raises InputError with all that is wrong with it."""
    from meshwright.frameworks.importing.launcher_file import launcher_beside
    from meshwright.plans.resolve import resolve_with
    from meshwright.verbs.import_ import import_text, renamed

    with _named(path):
        text = read_file(path, "file", "check the path")
        imported = import_text(text, wanted, launcher_beside(path))
    problems = list(imported.problems)
    if imported.plan is not None:
        try:
            resolve_with(imported.plan, imported.model, imported.cluster, imported.stack)
        except InputError as error:
            problems += renamed(error.problems, imported.foreign)
    if any(problem.severity == "error" for problem in problems):
        raise InputError(problems)
    return imported


def check(path: str | Path, wanted: "ImportRequest", constants: "Given | None" = None) -> "Checked":
    """Check a plan or another framework's file: its problems, its cost and changes that would fix it."""
    from meshwright.verbs.check import check_text

    with _named(path):
        return check_text(read_file(path, "file", "check the path"), str(path), wanted, constants)


def measure(
    budget_s: float = 300.0,
    *,
    processes: int | None = None,
    on: str | None = None,
    progress: "Progress | None" = None,
) -> "Measured | None":
    """Kernels and collectives of this machine as a cluster file; None on launched ranks other than the first."""
    from meshwright.verbs.measure import measure_here

    return measure_here(budget_s, processes, on, progress)


def measured_collectives(paths: Sequence[str], on: str) -> "Measured":
    """Output of nccl-tests or rccl-tests as constants of the cluster ``on``."""
    from meshwright.verbs.measure import from_collective_tests

    return from_collective_tests(paths, on)


def ingest(logs: Sequence[str], *, plan: str | None = None, settings: Iterable[str] = ()) -> "Ingested":
    """Training logs as rows of a table of runs. Raises InputError with the problems of all logs."""
    from meshwright.verbs.ingest import ingest_logs

    return ingest_logs(logs, plan, settings)


def probe(path: str | Path, *, top: int = 3, to: str | None = None) -> "Probes":
    """Short jobs of a plan and of plans near it, whose logs calibrate the cluster."""
    from meshwright.verbs.probe.probe_jobs import probes

    return probes(load(path), top, to)


def verify(
    path: str | Path,
    *,
    ranks: int = 8,
    against: str | Path | None = None,
    progress: "Progress | None" = None,
) -> "Verified | ComparedModels":
    """Proof on local processes that a plan, shrunk to at most ``ranks`` ranks, computes what one device computes.

    ``against`` another plan, or ``data-parallel``: whether both train equal models instead.
    """
    from meshwright.verbs.verify import compared, plan_against, verified

    shown = progress or (lambda what, part: None)
    if against is None:
        return verified(load(path), ranks, shown)
    return compared(load(path), str(against), plan_against(against), shown)


def run(
    path: str | Path, *, settings: Iterable[str] = (), show: bool = False, **request: Any
) -> "CompletedRun | None":
    """Train a plan on this host, or as a launched rank; None on launched ranks other than the first.

    ``request`` are the fields of ``verbs/run/run_request.py``, ``options`` with ``steps`` among them. ``show``:
    standard error tells how it goes.
    """
    from meshwright.verbs.run.run_request import RunRequest
    from meshwright.verbs.run.train import trained

    return trained(load(path, settings), RunRequest(**request), show=show)


def convert(checkpoint: str | Path, request: "ConvertRequest") -> "Converted | ConvertedFormat":
    """Write a checkpoint in another format, or its adapters merged into their base. Raises InputError."""
    from meshwright.verbs.convert import converted

    return converted(checkpoint, request)


def schedule(name: str, asked: "ScheduleRequest") -> "Scheduled":
    """Simulate a pipeline schedule, given by name or as a CSV file of lists.

    Raises InfeasibleError where a rank holds more than the memory limit.
    """
    from meshwright.verbs.schedule.named_schedules import scheduled

    return scheduled(name, asked)


def solve_schedule(asked: "ScheduleRequest", sought: "ScheduleSearchOptions") -> "Solved":
    """Search the shortest lists for a pipeline; return them with a lower bound.

    Raises InputError with all problems, InfeasibleError where no lists keep to the memory limit.
    """
    from meshwright.verbs.schedule.solve_chain import solved

    return solved(asked, sought)


def solve_plan(path: str | Path, asked: "ScheduleRequest", sought: "ScheduleSearchOptions") -> "Solved":
    """Search the shortest lists for a plan: at its own stage times, in seconds, and within its memory.

    ``asked`` may also have a memory limit. Raises InputError with all problems, InfeasibleError where no lists fit.
    """
    from meshwright.verbs.schedule.stage_times_of_plan import solved_for

    return solved_for(load(path), asked, sought)


def stage_times(
    path: str | Path, file: str, *, settings: Iterable[str] = (), constants: "Given | None" = None
) -> str:
    """Return a plan's stage times in the form that ``schedule --stage-times`` reads from ``file`` (YAML)."""
    from meshwright.verbs.schedule.stage_times_of_plan import stage_times_text

    return stage_times_text(load(path, settings, constants), file)


def solve_graph(asked: "GraphScheduleRequest", sought: "ScheduleSearchOptions") -> "SolvedGraph":
    """Search the shortest step of an operator graph with branches. Raises InputError, InfeasibleError."""
    from meshwright.verbs.schedule.solve_graph import solved_graph

    return solved_graph(asked, sought)


def compare_schedules(
    names: Sequence[str],
    asked: "ScheduleRequest",
    limits: Sequence[float] = (),
    sought: "ScheduleSearchOptions | None" = None,
) -> "Compared":
    """Several schedules of one pipeline, under several ``limits``. Raises InfeasibleError where none keeps to any."""
    from meshwright.verbs.schedule.compare_schedules import compared

    return compared(names, asked, limits, sought)


def schedules() -> dict[str, Any]:
    """All pipeline schedules with their figures at one example."""
    from meshwright.verbs.schedule.named_schedules import listed

    return listed()


def validate(path: str | Path, *, calibration: str | Path | None = None) -> "Validation | ServingValidation":
    """Compare predictions with the measured runs of a CSV file; ``calibration``: a file of levels for serving runs."""
    from meshwright.verbs.validate import validated_table

    return validated_table(path, calibration)


def calibrate(path: str | Path, *, on: str | None = None) -> "Calibrated | ServingCalibration":
    """Fit a cluster's constants, or levels of serving, to a table of runs; says what runs that were left out gain.

    ``on`` is a cluster that is known better than the table says, such as a measured one: its constants are kept.
    """
    from meshwright.verbs.calibrate import calibrated

    return calibrated(path, on)


def cluster_file(found: "ClusterCalibration") -> str:
    """Return the cluster of a calibration as the text of a cluster file."""
    from meshwright.cluster.cluster_to_file import dump_cluster

    return dump_cluster(found.cluster)


@contextmanager
def _named(path: str | Path) -> Iterator[None]:
    """Problems of a whole file name the file, not its content."""
    try:
        yield
    except InputError as error:
        problems = [replace(p, value=str(path)) if p.field == "file" else p for p in error.problems]
        raise type(error)(problems) from None


def play_graph(name: str, asked: "GraphScheduleRequest") -> "PlayedGraph":
    """Simulate a CSV file of ``solve_graph``, for operators with branches. Raises InputError, InfeasibleError."""
    from meshwright.verbs.schedule.solve_graph import played_graph

    return played_graph(name, asked)
