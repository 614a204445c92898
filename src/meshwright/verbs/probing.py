"""Probe runs: short jobs of a plan and of plans near it, whose logs calibrate the cluster.

Every job is a folder with its plan and the files of its stack's own framework, started with 20 steps: the first are
warm-up, the rest give a median. The plans are the given one and those that differ most from it among the plans that are
likely to fit and predicted to be at most a quarter slower: alike runs would tell the same thing twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from meshwright.cost.intervals import LIKELY
from meshwright.errors import InfeasibleError, InputError, Problem, UnsupportedError
from meshwright.export import TARGETS
from meshwright.plan.expand import expand
from meshwright.plan.files import dump_plan
from meshwright.plan.resolve import Resolved
from meshwright.plan.setting import Setting
from meshwright.plan.short import ShortPlan
from meshwright.search.spread import spread
from meshwright.units import format_bytes, format_seconds
from meshwright.verbs.planning import Question, answer
from meshwright.verbs.predicting import predicted

STEPS = 20
CONSIDERED = 64
SLOWEST = 1.25


class Runner(NamedTuple):
    """How a target runs probe jobs: the stacks that it is, options so that every step is logged, what is logged."""

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
}
"""By target. Others can be named with ``--to``; what they log is theirs to say."""
OTHER = Runner((), "", "the time of every step")


@dataclass(frozen=True, slots=True)
class Probe:
    """One job: its folder, its plan, what is predicted of it, and its files by path inside the folder."""

    name: str
    plan: ShortPlan
    step_time_s: float
    memory_bytes: int
    fits: bool
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Probes:
    """All jobs, the target that runs them, and the page that says what to do."""

    target: str
    jobs: tuple[Probe, ...]
    asked: int

    def files(self) -> dict[str, str]:
        """All texts by path."""
        inside = {f"{job.name}/{path}": text for job in self.jobs for path, text in job.files.items()}
        return {"README.md": _page(self), **inside}

    def to_json(self) -> dict[str, Any]:
        """The public form."""
        return {
            "target": self.target,
            "steps": STEPS,
            "asked": self.asked,
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
    """The jobs for a plan. Raises InputError where it has no short form, no exporter, or the exporter refuses it."""
    if top < 1:
        raise InputError(Problem("top", top, "must be at least 1", "top: 3"))
    short, stack = resolved.short, resolved.setting.stack.name
    target = target or next((name for name, runner in RUNNERS.items() if stack in runner.stacks), None)
    if target not in TARGETS:
        known = ", ".join(TARGETS)
        raise InputError(
            Problem("to", target or stack, "no target of export runs it", f"--to one of {known}")
        )
    if short is None:
        rule = "the plan has no short form, so none near it can be named"
        raise InputError(Problem("plan", "long form", rule, "a plan in short"))
    first = _job(1, short, resolved.setting, target)
    if not first.fits:
        reason = f"{format_bytes(first.memory_bytes)} on the fullest device"
        raise InfeasibleError(
            "The plan does not fit, so its job would not run.", [reason], "meshwright check"
        )
    others = _others(short, first.step_time_s, resolved.setting, target)
    chosen = spread(short, others, top)[1:]
    jobs = [_job(number, plan, resolved.setting, target) for number, plan in enumerate(chosen, 2)]
    return Probes(target, (first, *jobs), top)


def _others(short: ShortPlan, step_s: float, setting: Setting, target: str) -> list[ShortPlan]:
    """Plans that are likely to fit, not much slower, and that the target can run; best first."""
    found = answer(Question(short, top=CONSIDERED), setting)
    return [
        proposal.plan
        for proposal in found.proposals
        if (proposal.report.fits_probability or 0.0) >= LIKELY
        and proposal.report.step_time_s <= SLOWEST * step_s
        and _exportable(proposal.plan, setting, target)
    ]


def _exportable(plan: ShortPlan, setting: Setting, target: str) -> bool:
    try:
        _files(plan, setting, target)
    except UnsupportedError:
        return False
    return True


def _files(plan: ShortPlan, setting: Setting, target: str) -> Mapping[str, str]:
    long = expand(plan, setting.model.architecture)
    return TARGETS[target](long, setting.model, setting.cluster, setting.stack).files


def _job(number: int, plan: ShortPlan, setting: Setting, target: str) -> Probe:
    layout = plan.layout
    parts = [
        f"{axis}{getattr(layout, axis)}" for axis in ("pp", "tp", "cp", "ep") if getattr(layout, axis) > 1
    ]
    name = "-".join([f"{number:02}", *parts, f"mb{plan.pipeline.micro_batch}"])
    long = expand(plan, setting.model.architecture)
    report = predicted(Resolved(long, plan, setting))
    files = {
        "plan.yaml": dump_plan(plan),
        "run.sh": _run_script(target),
        **_files(plan, setting, target),
    }
    return Probe(name, plan, report.step_time_s, report.memory_bytes["total"], report.fits, files)


def _run_script(target: str) -> str:
    options = RUNNERS.get(target, OTHER).options
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            f"# {STEPS} steps of this plan; all that is printed goes to probe.log. Run it on every node, or",
            f"# submit {target}/job.sbatch with --export=ALL,TRAIN_ITERS={STEPS},TRAIN_STEPS={STEPS}.",
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
            f"1. Run `run.sh` of every job (on every node). It must log: {RUNNERS.get(made.target, OTHER).logged}.",
            f"2. `meshwright ingest {logs} -o runs.csv` (each log's plan lies beside it).",
            "3. `meshwright calibrate runs.csv -o my-cluster.yaml`, then `meshwright plan … --on my-cluster.yaml`.",
            "",
        ]
    )
