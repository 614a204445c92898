"""Have a target take one step of a plan on a process group that is none, and hold it against the plan's Program.

The step has at most ``MICRO_BATCHES`` micro-batches without a pipeline and twice its ranks with one: all others repeat
these, in the target as in the Program. One process runs for each pipeline rank, for all ranks of one do the same.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from meshwright.errors import InputError, Problem, UnsupportedError
from meshwright.frameworks.export_targets import TARGETS
from meshwright.frameworks.exporting.uniform_plan import read_uniform
from meshwright.frameworks.target_checks.comparison_result import ClassComparison, Disagreement
from meshwright.frameworks.target_checks.known_differences import DIFFERENCES, PlanKind
from meshwright.frameworks.target_checks.planned_collectives import RankView
from meshwright.frameworks.target_checks.recorded_step import read_recorded_step
from meshwright.frameworks.target_checks.step_comparison import compare
from meshwright.frameworks.target_checks.target_python import (
    NEEDS_GPU,
    TARGET_CHECKS,
    require_module,
    run_json_script,
    temporary_folder,
)
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.setting import Setting
from meshwright.program.lowering.lower_plan import lower
from meshwright.stack.load import load_stack
from meshwright.stack.stack import Stack

MICRO_BATCHES = 2
MODEL = "model/config.json"
"""Where a script finds the model's own description."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """Result of a target's step, class by class."""

    classes: tuple[ClassComparison, ...]
    micro_batches: int
    of_micro_batches: int
    stack: str
    python: str

    @property
    def disagreements(self) -> int:
        """Return the number over all classes."""
        return sum(len(one.disagreements) for one in self.classes)

    def to_json(self) -> dict[str, Any]:
        """Return the public form; ``accepted`` means that there is no disagreement."""
        found = self.disagreements
        return {
            "by": "dry",
            "accepted": not found,
            "message": f"something else than the plan means: {found} disagreements" if found else "",
            "micro_batches": {"run": self.micro_batches, "of": self.of_micro_batches},
            "stack": self.stack,
            "classes": [asdict(one) for one in self.classes],
            "python": self.python,
        }


def dry_run(target: str, long: LongPlan, setting: Setting, config: Mapping[str, Any], python: str) -> DryRun:
    """One step of every class of ranks; ``config`` is the model's ``config.json``.

    Raises InputError where the target can take none there, with its reason, UnsupportedError where it takes none of
    such a plan.
    """
    asked = TARGET_CHECKS[target]
    if asked.steps is None:
        raise InputError(Problem("check", target, asked.why_not, NEEDS_GPU))
    require_module(python, asked.module)
    short, stack = shortened_plan(long, setting), target_stack(target, setting.stack)
    kept = short.workload.global_batch
    export = TARGETS[target](short, setting.model, setting.cluster, setting.stack)
    program = lower(
        short, setting.model, setting.cluster, replace(setting.workload, global_batch=kept), stack
    )
    uniform = read_uniform(short, setting.model)
    kind = PlanKind(uniform.sharding, uniform.pp > 1, str(uniform.recompute))
    classes: list[ClassComparison] = []
    with temporary_folder({**export.files, MODEL: json.dumps(config)}) as (folder, scripts):
        for pipeline_rank in range(program.pipeline_ranks):
            seat = RankView(program, pipeline_rank)
            words = [str(folder / target), str(seat.rank), str(folder / MODEL)]
            line = run_json_script([python, str(scripts / asked.steps), *words])
            classes.append(_class_of(target, seat, kind, line))
            if not line.get("ran"):
                break
    whole = program.micro_batches * long.workload.global_batch // kept
    return DryRun(tuple(classes), program.micro_batches, whole, stack.id, python)


def _class_of(target: str, seat: RankView, kind: PlanKind, line: Mapping[str, Any]) -> ClassComparison:
    """Return the comparison of one class. Raises UnsupportedError if the script refused it before the step."""
    if line.get("ran"):
        return compare(seat, read_recorded_step(line), kind, DIFFERENCES[target])
    if line.get("refused"):
        raise UnsupportedError([Problem("check", target, str(line.get("message")), NEEDS_GPU)])
    failure = Disagreement("the step itself", "one step", f"ended with {line.get('message')}")
    return ClassComparison(
        seat.rank, seat.pipeline_rank, float(line.get("seconds", 0.0)), disagreements=[failure]
    )


def shortened_plan(long: LongPlan, setting: Setting) -> LongPlan:
    """Return the plan with enough micro-batches for a step to show every collective."""
    uniform = read_uniform(long, setting.model)
    most = MICRO_BATCHES if uniform.pp == 1 else 2 * uniform.pp * uniform.virtual_stages
    global_batch = uniform.dp * uniform.micro_batch * min(most, uniform.micro_batches)
    workload = long.workload.model_copy(update={"global_batch": global_batch})
    return long.model_copy(update={"workload": workload})


def target_stack(target: str, planned: Stack) -> Stack:
    """Return the stack that the exported files run on: the plan's own where it is the target's."""
    name = TARGET_CHECKS[target].stack
    return planned if planned.name == name else load_stack(name)
