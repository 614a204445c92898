"""The verbs as functions. Both towers meet here and nowhere else; the command line only renders what these return.

Every function takes names or paths as a person writes them and returns JSON-ready data or frozen values. Wrong
input raises ``InputError`` with all problems; an answer that is "no" raises ``InfeasibleError`` with the reasons.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import InputError, Problem, attempted, nearest
from meshwright.plan.change import apply_settings, moved_degrees
from meshwright.plan.files import load_plan
from meshwright.plan.long import LongPlan
from meshwright.plan.resolve import Resolved, beside, resolve
from meshwright.plan.short import CapacitySpec, RoutingSpec, ShortPlan, WorkloadSpec
from meshwright.plan.text import read_file
from meshwright.plan.written_lists import with_lists
from meshwright.result import Report
from meshwright.verbs.predicting import check_playable

if TYPE_CHECKING:
    from meshwright.calibration.own import OwnCalibration
    from meshwright.explain.against import Against
    from meshwright.explain.explained import Explained
    from meshwright.validation.result import Validation
    from meshwright.verbs.calibrating import Calibrated
    from meshwright.verbs.checking import Checked
    from meshwright.verbs.choosing import Choice
    from meshwright.verbs.emulating import Emulated
    from meshwright.verbs.importing import Imported, Wanted
    from meshwright.verbs.ingesting import Ingested
    from meshwright.verbs.measuring import Measured, Progress
    from meshwright.verbs.probing import Probes
    from meshwright.verbs.schedule_auto import Solved, Sought
    from meshwright.verbs.schedule_branches import AskedOfGraph, PlayedGraph, SolvedGraph
    from meshwright.verbs.schedule_question import Asked
    from meshwright.verbs.scheduling import Compared, Scheduled
    from meshwright.verbs.solving import Solving
    from meshwright.verbs.trained import Trained
    from meshwright.verbs.verifying import Verified

__all__ = [
    "calibrate",
    "check",
    "cluster_file",
    "compare",
    "compare_schedules",
    "describe",
    "emulate",
    "explain",
    "export",
    "import_file",
    "ingest",
    "lists",
    "measure",
    "measured_collectives",
    "plan",
    "play_graph",
    "predict",
    "probe",
    "run",
    "schedule",
    "schedules",
    "solve_graph",
    "solve_plan",
    "solve_schedule",
    "stage_times",
    "trace",
    "validate",
    "verify",
]


def describe(name: str, *, long: bool = False, seq_len: int = 4096) -> dict[str, Any]:
    """What we think a model, cluster, stack or plan is, with every default. ``long``: a plan's long form."""
    from meshwright.verbs.describing import describe_anything

    return describe_anything(name, long=long, seq_len=seq_len)


def plan(
    model: str,
    *,
    on: str | Iterable[str],
    seq_len: int,
    global_batch: int,
    stack: str = "megatron-core",
    precision: str = "bf16",
    task: str = "pretrain",
    objective: str = "throughput",
    budget_usd: float | None = None,
    deadline_days: float | None = None,
    keep: Iterable[str] = (),
    forbid: Iterable[str] = (),
    top: int = 5,
    stages: str = "balanced",
    schedule: str | None = None,
    solving: "Solving | None" = None,
    documents: Iterable[int] | None = None,
    routing: RoutingSpec | None = None,
    capacity: float | CapacitySpec | None = None,
    tokens: str | int | None = None,
    assume: Iterable[str] = (),
    progress: "Progress | None" = None,
) -> "Choice":
    """Search the best plans for a model on a cluster. ``keep`` fixes choices, as ``tp=8``, ``forbid`` excludes them.

    ``on``: one cluster or several, "h100-sxm-80gb x <=256" for any number of devices up to that, a price list. Of them
    the best by ``objective``; ``budget_usd`` and ``deadline_days`` of a training of ``tokens`` limit the choice.

    ``schedule``: "auto" for all schedules of the stack with their knobs, or names, as "zb-v,1f1b"; those with closed
    forms if nothing is said. ``stages``: layers per stage, "balanced" or cut anew by "time" or by "memory".
    ``solving``: how long a solver looks for better lists; ``documents``: lengths of those that sequences are packed
    with; ``routing``, ``capacity``: how unevenly tokens choose experts, how many these take; ``progress`` hears how far
    it is. ``tokens`` and ``assume`` as of ``predict``. Raises InfeasibleError when nothing fits.
    """
    from meshwright.economy.limits import Limits
    from meshwright.verbs.choosing import Wish, choose
    from meshwright.verbs.planning import Question

    named = (on,) if isinstance(on, str) else tuple(on)
    workload = WorkloadSpec(
        task=task,
        seq_len=seq_len,
        global_batch=global_batch,
        precision=precision,
        documents=None if documents is None else tuple(documents),
        routing=routing,
        capacity=capacity,
    )
    header = ShortPlan(plan=1, model=model, cluster=", ".join(named), workload=workload, stack=stack)
    question = Question(header, tuple(keep), top, stages, schedule, solving, tuple(forbid))
    wish = Wish(named, objective, Limits(budget_usd, deadline_days), tokens, tuple(assume))
    return choose(question, wish, progress)


def predict(
    path: str | Path,
    *,
    settings: Iterable[str] = (),
    tokens: str | int | None = None,
    assume: Iterable[str] = (),
) -> Report:
    """The Report of a plan file; ``settings`` change it first, as ``tp=4``.

    ``tokens``: what a training of so many comes to, "15T". ``assume``: what nobody else says, as ``restart_s=300``.
    """
    from meshwright.verbs.weighing import report_on_terms

    return report_on_terms(lambda: load(path, settings), tokens, assume)


def trace(path: str | Path, *, settings: Iterable[str] = ()) -> dict[str, Any]:
    """The simulated step of a plan as a Chrome trace (JSON-ready), one process per pipeline rank."""
    from meshwright.simulate.predict import played
    from meshwright.simulate.trace import perfetto_trace

    resolved = load(path, settings)
    check_playable(resolved)
    return perfetto_trace(*played(resolved.long, resolved.setting))


def lists(path: str | Path, *, settings: Iterable[str] = ()) -> str:
    """The passes of a plan's own lists as CSV, a line for each pipeline rank, those of a spread vocabulary too."""
    from meshwright.schedule.action import PASS_KINDS
    from meshwright.schedule.table import csv_of
    from meshwright.simulate.predict import played

    resolved = load(path, settings)
    check_playable(resolved)
    program, _ = played(resolved.long, resolved.setting)
    return csv_of([[action for action in actions if action.kind in PASS_KINDS] for actions in program.lists])


def emulate(
    path: str | Path,
    *,
    ranks: int | None = None,
    limit_s: float | None = None,
    settings: Iterable[str] = (),
    progress: "Progress | None" = None,
) -> "Emulated":
    """A plan's step by the interpreter itself, on local processes at modelled times, beside the simulated step.

    ``ranks`` processes, by default one for each pipeline rank; ``limit_s`` is how long it may take. Raises RunError
    where the ranks wait for each other in vain.
    """
    from meshwright.verbs.emulating import LIMIT_S, emulated

    return emulated(load(path, settings), ranks, LIMIT_S if limit_s is None else limit_s, progress)


def compare(a: str | Path, b: str | Path) -> dict[str, Any]:
    """Two plans line by line: what they say, and what they are predicted to do; or a plan beside a trace of it."""
    from meshwright.report.comparing import compare_reports
    from meshwright.verbs.tracing import beside_trace, is_trace

    if is_trace(a):
        rule = "is a trace by its name, and the plan that it is a trace of comes first"
        raise InputError(Problem("a", str(a), rule, f"meshwright compare {b} {a}"))
    if is_trace(b):
        return beside_trace(load(a), b)
    return compare_reports((load(a), predict(a)), (load(b), predict(b)))


def explain(
    path: str | Path, *, against: str | Path | None = None, progress: "Progress | None" = None
) -> "Explained | Against":
    """Why a plan costs what it costs, and what would change the answer; or why it differs from the plan ``against``.

    Raises InputError for a plan that only minutes of playing would price, and for two that do not compare.
    """
    from meshwright.explain.against import compared
    from meshwright.explain.explain import explained

    if against is None:
        return explained(load(path), progress or (lambda what, part: None))
    own = load(path)
    with _below("against"):
        other = load(against)
    return compared(own, other, str(against))


def export(
    path: str | Path,
    *,
    to: str,
    launcher: str = "sbatch",
    check: str | None = None,
    python: str | None = None,
) -> dict[str, Any]:
    """Files with which a framework runs a plan: ``{"files": {path: text}, "refused": […]}``.

    ``launcher`` starts them on all nodes. ``check`` asks the target itself in the interpreter ``python`` (this one by
    default) and adds what it says: "parser" hands the files to its parser, "dry" has it take a step of the plan
    without devices and holds that against the plan.
    """
    from meshwright.export import TARGETS
    from meshwright.export.launch import job_for
    from meshwright.export.launchers.launch_files import launch_files

    if to not in TARGETS:
        raise InputError(Problem("to", to, "is no target of export", nearest(to, TARGETS)))
    resolved = load(path)
    setting = resolved.setting
    written = TARGETS[to](resolved.long, setting.model, setting.cluster, setting.stack)
    written = launch_files(written, job_for(setting.cluster, setting.model.name, resolved.long), launcher)
    if check is None:
        return written.to_json()
    from meshwright.verbs.exporting import checked

    return written.to_json() | {
        "check": checked(check, to, written.files, resolved, python or sys.executable)
    }


def import_file(path: str | Path, wanted: "Wanted") -> "Imported":
    """Another framework's file as a plan. Raises InputError with all that is wrong with it."""
    from meshwright.plan.resolve import resolve_with
    from meshwright.verbs.importing import import_text, renamed

    with _named(path):
        imported = import_text(read_file(path, "file", "check the path"), wanted)
    problems = list(imported.problems)
    if imported.plan is not None:
        try:
            resolve_with(imported.plan, imported.model, imported.cluster, imported.stack)
        except InputError as error:
            problems += renamed(error.problems, imported.foreign)
    if any(problem.severity == "error" for problem in problems):
        raise InputError(problems)
    return imported


def check(path: str | Path, wanted: "Wanted") -> "Checked":
    """What is wrong with a plan or another framework's file, what it costs, and what would mend it."""
    from meshwright.verbs.checking import check_text

    with _named(path):
        return check_text(read_file(path, "file", "check the path"), str(path), wanted)


def measure(
    budget_s: float = 300.0,
    *,
    processes: int | None = None,
    on: str | None = None,
    progress: "Progress | None" = None,
) -> "Measured | None":
    """Kernels and collectives of this machine as a cluster file; None on launched ranks other than the first."""
    from meshwright.verbs.measuring import measure_here

    return measure_here(budget_s, processes, on, progress)


def measured_collectives(paths: Sequence[str], on: str) -> "Measured":
    """Output of nccl-tests or rccl-tests as constants of the cluster ``on``."""
    from meshwright.verbs.measuring import from_collective_tests

    return from_collective_tests(paths, on)


def ingest(logs: Sequence[str], *, plan: str | None = None, settings: Iterable[str] = ()) -> "Ingested":
    """Training logs as rows of a table of runs. Raises InputError with the problems of all logs."""
    from meshwright.verbs.ingesting import ingest_logs

    return ingest_logs(logs, plan, settings)


def probe(path: str | Path, *, top: int = 3, to: str | None = None) -> "Probes":
    """Short jobs of a plan and of plans near it, whose logs calibrate the cluster."""
    from meshwright.verbs.probing import probes

    return probes(load(path), top, to)


def verify(path: str | Path, *, ranks: int = 8, progress: "Progress | None" = None) -> "Verified":
    """Proof on local processes that a plan, shrunk to at most ``ranks`` ranks, computes what one device computes."""
    from meshwright.verbs.verifying import verified

    return verified(load(path), ranks, progress or (lambda what, part: None))


def run(
    path: str | Path,
    *,
    options: Mapping[str, Any],
    precision: str | None = None,
    initial: str | None = None,
    export: str | None = None,
    resume: str = "auto",
    cpu: bool = False,
    force: bool = False,
    settings: Iterable[str] = (),
    show: bool = False,
) -> "Trained | None":
    """Train a plan on this host, or as a launched rank; None on launched ranks other than the first.

    ``options`` are fields of ``runtime/options.py``, ``steps`` among them. ``show``: standard error tells how it goes.
    """
    from meshwright.verbs.run_checks import Wish
    from meshwright.verbs.running import trained

    wish = Wish(
        options=options,
        precision=precision,
        initial=initial,
        export=export,
        resume=resume,
        cpu=cpu,
        force=force,
    )
    return trained(load(path, settings), wish, show=show)


def schedule(name: str, asked: "Asked") -> "Scheduled":
    """A pipeline schedule by name, or of a CSV file of lists, played.

    Raises InfeasibleError where a rank holds more than the memory limit.
    """
    from meshwright.verbs.scheduling import scheduled

    return scheduled(name, asked)


def solve_schedule(asked: "Asked", sought: "Sought") -> "Solved":
    """The shortest lists that can be found for a pipeline, with a bound that none are below.

    Raises InputError with all problems, InfeasibleError where no lists keep to the memory limit.
    """
    from meshwright.verbs.schedule_auto import solved

    return solved(asked, sought)


def solve_plan(path: str | Path, asked: "Asked", sought: "Sought") -> "Solved":
    """The shortest lists that can be found for a plan: at its own stage times, in seconds, and within its memory.

    ``asked`` may have a memory limit beside. Raises InputError with all problems, InfeasibleError where no lists fit.
    """
    from meshwright.verbs.schedule_of_plan import solved_for

    return solved_for(load(path), asked, sought)


def stage_times(path: str | Path, file: str, *, settings: Iterable[str] = ()) -> str:
    """A plan's stage times as ``schedule --stage-times`` reads them from ``file`` (YAML)."""
    from meshwright.verbs.schedule_of_plan import stage_times_text

    return stage_times_text(load(path, settings), file)


def solve_graph(asked: "AskedOfGraph", sought: "Sought") -> "SolvedGraph":
    """The shortest step that can be found for operators with branches: their ranks, and the ranks' lists.

    Raises InputError with all problems, InfeasibleError where nothing keeps to the memory.
    """
    from meshwright.verbs.schedule_branches import solved_graph

    return solved_graph(asked, sought)


def compare_schedules(names: Sequence[str], asked: "Asked") -> "Compared":
    """Several schedules of one pipeline, played. Raises InfeasibleError where none keeps to the memory limit."""
    from meshwright.verbs.scheduling import compared

    return compared(names, asked)


def schedules() -> dict[str, Any]:
    """All pipeline schedules with their figures at one example."""
    from meshwright.verbs.scheduling import listed

    return listed()


def validate(path: str | Path) -> "Validation":
    """Predictions beside the measured runs of a CSV file, with a summary of their errors."""
    from meshwright.validation.result import validate_runs

    return validate_runs(path)


def calibrate(path: str | Path, *, on: str | None = None) -> "Calibrated":
    """Fit a cluster's constants to a table of runs on it; says what runs that were left out gain.

    ``on`` is a cluster that is known better than the table says, such as a measured one: its constants are kept.
    """
    from meshwright.verbs.calibrating import calibrated

    return calibrated(path, on)


def cluster_file(found: "OwnCalibration") -> str:
    """The cluster of a calibration as the text of a cluster file."""
    from meshwright.cluster.dump import dump_cluster

    return dump_cluster(found.cluster)


@contextmanager
def _below(option: str) -> Iterator[None]:
    """Problems of a second file name the option that it was given with."""
    try:
        yield
    except InputError as error:
        raise type(error)(replace(p, field=f"{option}.{p.field}") for p in error.problems) from None


@contextmanager
def _named(path: str | Path) -> Iterator[None]:
    """Problems of a whole file name the file, not its content."""
    try:
        yield
    except InputError as error:
        problems = [replace(p, value=str(path)) if p.field == "file" else p for p in error.problems]
        raise type(error)(problems) from None


def play_graph(name: str, asked: "AskedOfGraph") -> "PlayedGraph":
    """The lists of a CSV file that ``solve_graph`` wrote, played for operators with branches.

    Raises InputError with everything that is wrong, InfeasibleError where a rank holds more than the memory.
    """
    from meshwright.verbs.schedule_branches import played_graph

    return played_graph(name, asked)


def load(path: str | Path, settings: Iterable[str] = ()) -> Resolved:
    """A plan file with everything that it names; ``settings`` change it first. Raises InputError."""
    read = beside(load_plan(path), Path(path).parent)
    chosen = tuple(settings)
    return _changed(read, chosen) if chosen else resolve(read)


def _changed(read: ShortPlan | LongPlan, settings: tuple[str, ...]) -> Resolved:
    """The plan with its settings; degrees that changed without being named are among its warnings."""
    from meshwright.cluster.load import load_cluster
    from meshwright.plan.expand import shorten

    short = shorten(read) if isinstance(read, LongPlan) else read
    if short is None:
        rule = "the plan has no short form, so single settings can not be changed"
        raise InputError(Problem("set", list(settings), rule, "edit the file"))
    pairs = (setting.partition("=") for setting in settings)
    named = {name.strip(): value.strip() for name, _, value in pairs}.get("cluster", short.cluster)
    problems: list[Problem] = []
    cluster = attempted(lambda: load_cluster(named), problems)
    devices = None if cluster is None else cluster.devices
    changed = attempted(lambda: apply_settings(short, settings, devices), problems)
    if problems or changed is None:
        raise InputError(problems)
    found = resolve(with_lists(changed, Path()))
    return replace(found, warnings=(*moved_degrees(short, changed, settings), *found.warnings))
