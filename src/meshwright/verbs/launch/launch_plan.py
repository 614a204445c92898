"""Write the files of a job that runs a plan, and have each accepted by its schema or parser."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshwright import __version__
from meshwright.economy.goodput import checkpoint_bytes
from meshwright.errors import InfeasibleError, InputError, Problem, UnsupportedError, attempted
from meshwright.frameworks.export_targets import TARGETS
from meshwright.frameworks.exporting.export_result import Export
from meshwright.frameworks.exporting.launcher_files import SCRIPT, launch_files
from meshwright.launchers.job_nodes import IMAGE, Job, job_for
from meshwright.launchers.parsers.check_files import Verdict, verdicts
from meshwright.plans.resolve import Resolved
from meshwright.plans.rules.stack_limits.meshwright import unsupported_by_runtime
from meshwright.stack.stack import OWN_STACK
from meshwright.verbs.launch.launch_request import (
    LaunchRequest,
    check_request,
    storage_of,
    words_on_nodes,
)
from meshwright.verbs.launch.launch_targets import command_line
from meshwright.verbs.launch.plan_files import PlanFiles, plan_files
from meshwright.verbs.launch.recovery_choice import recovery_choice
from meshwright.verbs.launch.run_script import run_script
from meshwright.verbs.load_plan import PlanSource, load

RESTARTS = 3
"""How often a job that failed is started again."""
KEPT = 3
"""Checkpoints for which a new volume has room: two are kept while another one is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A job's files by name, the words that start it from their folder, the readers' verdicts, and remarks."""

    files: Mapping[str, str]
    command: list[str]
    verdicts: tuple[Verdict, ...]
    remarks: tuple[str, ...]
    nodes: int

    def to_json(self, folder: str) -> dict[str, Any]:
        """Return the public form of a job whose files are in ``folder``, before it is started."""
        return {
            "files": dict(self.files),
            "command": command_line(self.command, folder),
            "accepted": [{"path": verdict.path, "by": verdict.by} for verdict in self.verdicts],
            "remarks": list(self.remarks),
            "submitted": None,
        }


def prepared(path: PlanSource, request: LaunchRequest) -> Launch:
    """Return the job of a plan. Raise InputError with all that is wrong, InfeasibleError where a file is refused."""
    problems: list[Problem] = []
    attempted(lambda: check_request(request), problems)
    resolved = attempted(lambda: _ours(path), problems)
    if problems or resolved is None:
        raise InputError(problems)
    system, job = request.system, _job(resolved, request)
    plan = plan_files(resolved, copied=request.remote)
    words, remarks = words_on_nodes(request), _remarks(job, plan, request)
    recovery = recovery_choice(resolved, request)
    words += recovery.words
    remarks += recovery.reasons
    summary = f"{resolved.setting.model.name} on {resolved.setting.cluster.devices} x {job.device.id}"
    files = {**plan.files, SCRIPT: _script(job, summary, words, recovery.reasons, request)}
    if system.launcher:
        export = Export(target=OWN_STACK, release=__version__, files=files)
        files = dict(launch_files(export, job, system.launcher).files)
    found = tuple(verdicts(files))
    _refuse(found)
    command = system.command(job, request.address)
    return Launch(files=files, command=command, verdicts=found, remarks=tuple(remarks), nodes=job.nodes)


def _script(job: Job, summary: str, words: list[str], reasons: Sequence[str], request: LaunchRequest) -> str:
    ranks_started = request.system.starts_ranks
    return run_script(job, summary, words, reasons, shared=not request.remote, ranks_started=ranks_started)


def _ours(path: PlanSource) -> Resolved:
    """Return the plan. Raise InputError if it is for another stack or not run by ours."""
    resolved = load(path, stack_binds=True)
    stack = resolved.setting.stack
    if stack.name != OWN_STACK:
        rule = f"launch starts meshwright run, and the plan is for {stack.id}"
        targets = " | ".join(TARGETS)
        hint = f"meshwright export PLAN --to {targets} --launcher NAME, or stack: {OWN_STACK}"
        raise UnsupportedError(Problem("stack", stack.id, rule, hint))
    problems = unsupported_by_runtime(resolved.long, resolved.setting.model)
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise UnsupportedError(errors)
    return resolved


def _job(resolved: Resolved, request: LaunchRequest) -> Job:
    setting = resolved.setting
    job = job_for(setting.cluster, setting.model.name, resolved.long)
    storage = storage_of(request, KEPT * round(checkpoint_bytes(setting)))
    return replace(
        job,
        processes_per_node=job.devices_per_node if request.system.starts_ranks else 1,
        image=request.image or IMAGE,
        storage=storage,
        restarts=RESTARTS,
        accelerated=not (job.device.synchronous or request.has("--cpu")),
    )


def _remarks(job: Job, plan: PlanFiles, request: LaunchRequest) -> list[str]:
    remarks = list(plan.remarks)
    if request.storage is None and not request.has("--out"):
        remarks.append(
            "No --storage: RUN must lie where all nodes see it and where it outlives the job; launch.sh says how."
        )
    if not request.has("--steps"):
        remarks.append(
            "No number of steps: name it behind -- (-- --steps 1000), or set STEPS where launch.sh runs."
        )
    if request.system.images and request.image is None:
        remarks.append(f"No --image: put one with meshwright[run] in the place of {IMAGE}.")
    if not request.system.launcher and job.nodes > 1:
        remarks.append(
            f"Run the command on each of the {job.nodes} nodes, with MASTER_ADDR set to the first one."
        )
    return remarks


def _refuse(found: tuple[Verdict, ...]) -> None:
    """Raise InfeasibleError if a reader refuses a file."""
    reasons = [
        f"{verdict.path}, read by {verdict.by}: {fault}" for verdict in found for fault in verdict.faults
    ]
    if reasons:
        raise InfeasibleError("A file of the job is refused; nothing was written or started.", reasons)
