"""Probe runs: short jobs of a plan and of plans near it, whose logs calibrate the cluster.

Every job is a folder with its plan and the files of its stack's own framework, started with 20 steps: the first are
warm-up, the rest give a median. The plans are the given one and others near it (``select_plans.py``): alike runs would
tell the same thing twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from shlex import quote
from typing import Any, NamedTuple

from meshwright.calibration.calibrate_cluster import FEWEST_RUNS
from meshwright.errors import InfeasibleError, InputError, Problem, UnsupportedError
from meshwright.frameworks.export_targets import TARGETS
from meshwright.plans.files.plan_file import Plan, dump_plan
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.resolve import Resolved
from meshwright.plans.setting import Setting
from meshwright.search.nearby.diverse_subset import coordinates
from meshwright.stack.stack import OWN_STACK
from meshwright.units import format_bytes, format_seconds
from meshwright.verbs.absolute_paths import file_path, with_whole_paths
from meshwright.verbs.predict.predict_plan import predicted
from meshwright.verbs.probe.meshwright_job import own_files
from meshwright.verbs.probe.select_plans import SLOWEST, select_probe_plans

STEPS = 20
IN_FULL = "The plan is in full: the other jobs keep its stages and rules of layers."


class Runner(NamedTuple):
    """A target's way to run probe jobs: stacks, options that log every step, logged figures."""

    stacks: tuple[str, ...]
    options: str
    logged: str


RUNNERS: Mapping[str, Runner] = {
    "megatron": Runner(
        ("megatron-core", "nemo"),
        "",
        "a line per iteration with its milliseconds, `max allocated` after the first",
    ),
    "bridge": Runner(("megatron-bridge",), "", "Step Time and MODEL_TFLOP/s/GPU per step"),
    "torchtitan": Runner(("torchtitan",), "--metrics.log_freq 1 ", "a line per step with tps and memory"),
    "deepspeed": Runner(("deepspeed",), "", "SamplesPerSec and MaxMemAllocated per step"),
    OWN_STACK: Runner((OWN_STACK,), "", "the metrics of every step"),
}
"""By target; our own runtime is one too. Others can be named with ``--to``; what they log is theirs to say."""
OTHER = Runner((), "", "the time of every step")


@dataclass(frozen=True, slots=True)
class Probe:
    """One job: its folder, its plan, what is predicted of it, and its files by path inside the folder."""

    name: str
    plan: Plan
    step_time_s: float
    memory_bytes: int
    fits: bool
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Probes:
    """All jobs, the target that runs them, and the page that says what to do."""

    target: str
    jobs: tuple[Probe, ...]
    requested: int

    @property
    def remark(self) -> str | None:
        """Return a remark on the choice of the plans; None where there is none."""
        in_full = isinstance(self.jobs[0].plan, LongPlan)
        sentences = [IN_FULL] if in_full and len(self.jobs) > 1 else []
        if len(self.jobs) < self.requested:
            others = (
                "change of tp, cp, ep or micro-batch that keeps its stages"
                if in_full
                else "other plan near it"
            )
            sentences.append(
                f"Only {len(self.jobs)} of {self.requested} jobs: no {others} is legal, likely to fit, run by "
                f"{self.target}, at most {SLOWEST - 1:.0%} slower and different enough."
            )
            if len(self.jobs) < FEWEST_RUNS:
                sentences.append(f"`calibrate` needs {FEWEST_RUNS} runs: probe another plan too.")
        return " ".join(sentences) or None

    def files(self) -> dict[str, str]:
        """All texts by path."""
        inside = {f"{job.name}/{path}": text for job in self.jobs for path, text in job.files.items()}
        return {"README.md": _page(self), **inside}

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        return {
            "target": self.target,
            "steps": STEPS,
            "asked": self.requested,
            "remark": self.remark,
            "jobs": [
                {
                    "name": job.name,
                    "plan": job.plan.to_data(),
                    "step_time_s": job.step_time_s,
                    "memory_bytes": job.memory_bytes,
                }
                for job in self.jobs
            ],
            "files": self.files(),
        }


def probes(resolved: Resolved, top: int, target: str | None = None) -> Probes:
    """Return the jobs for a plan. Raise InputError where it has no exporter, or the exporter refuses it."""
    if top < 1:
        raise InputError(Problem("top", top, "must be at least 1", "top: 3"))
    stack = resolved.setting.stack.name
    target = target or next((name for name, runner in RUNNERS.items() if stack in runner.stacks), None)
    if target not in TARGETS and target != OWN_STACK:
        known = ", ".join((*TARGETS, OWN_STACK))
        raise InputError(
            Problem("to", target or stack, "no target of export runs it", f"--to one of {known}")
        )
    first = _job(1, resolved, target)
    if not first.fits:
        reason = f"{format_bytes(first.memory_bytes)} on the fullest device"
        raise InfeasibleError(
            "The plan does not fit, so its job would not run.", [reason], "meshwright check"
        )
    chosen = select_probe_plans(
        resolved,
        first.step_time_s,
        top - 1,
        lambda plan: _exportable(_resolved(plan, resolved.setting), target),
    )
    jobs = [_job(number, _resolved(plan, resolved.setting), target) for number, plan in enumerate(chosen, 2)]
    return Probes(target, (first, *jobs), top)


def _resolved(plan: Plan, setting: Setting) -> Resolved:
    """Return a legal plan with its setting."""
    if isinstance(plan, LongPlan):
        return Resolved(plan, None, setting)
    return Resolved(expand(plan, setting.model.architecture), plan, setting)


def _exportable(resolved: Resolved, target: str) -> bool:
    try:
        _files(resolved, target)
    except UnsupportedError:
        return False
    return True


def _files(resolved: Resolved, target: str) -> Mapping[str, str]:
    setting = resolved.setting
    if target == OWN_STACK:
        return own_files(resolved)
    return TARGETS[target](resolved.long, setting.model, setting.cluster, setting.stack).files


def _job(number: int, resolved: Resolved, target: str) -> Probe:
    plan = with_whole_paths(resolved.short or resolved.long)
    tp, pp, cp, ep, micro_batch = coordinates(plan)
    degrees = {"pp": pp, "tp": tp, "cp": cp, "ep": ep}
    parts = [f"{axis}{degree}" for axis, degree in degrees.items() if degree > 1]
    report = predicted(resolved)
    files = {
        "plan.yaml": dump_plan(plan),
        "run.sh": _run_script(target),
        **_files(resolved, target),
    }
    name = "-".join([f"{number:02}", *parts, f"mb{micro_batch}"])
    return Probe(name, plan, report.step_time_s, report.memory_bytes["total"], report.fits, files)


def _run_script(target: str) -> str:
    options = RUNNERS.get(target, OTHER).options
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            f"# {STEPS} steps of this plan; all that is printed goes to probe.log. Run it on every node, or",
            f"# submit {target}/job.sbatch, if there is one, with",
            f"# --export=ALL,TRAIN_ITERS={STEPS},TRAIN_STEPS={STEPS}.",
            "set -euo pipefail",
            'HERE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"',
            f"export TRAIN_ITERS={STEPS} TRAIN_STEPS={STEPS}",
            f'bash "${{HERE}}/{target}/launch.sh" {options}"$@" 2>&1 | tee "${{HERE}}/probe.log"',
            "",
        ]
    )


def _page(made: Probes) -> str:
    rows = [
        f"| {job.name} | {format_seconds(job.step_time_s)} | {format_bytes(job.memory_bytes)} |"
        for job in made.jobs
    ]
    logs = " ".join(f"{job.name}/probe.log" for job in made.jobs)
    cluster = file_path(made.jobs[0].plan.cluster)
    on = f" --on {quote(str(cluster))}" if cluster else ""
    return "\n".join(
        [
            "# Probe runs",
            "",
            f"{len(made.jobs)} jobs of {STEPS} steps for {made.target}. Predicted:",
            "",
            "| job | step | memory of the fullest device |",
            "| --- | --- | --- |",
            *rows,
            "",
            *([made.remark, ""] if made.remark else []),
            f"1. Run `run.sh` of every job (on every node). It must log: {RUNNERS.get(made.target, OTHER).logged}.",
            f"2. `meshwright ingest {logs} -o runs.csv` (each log's plan lies beside it).",
            f"3. `meshwright calibrate runs.csv{on} -o my-cluster.yaml`.",
            "4. `meshwright plan … --on my-cluster.yaml`.",
            "",
        ]
    )
