"""Prove that a plan computes what one device computes: shrink it, run it on local ranks, compare.

The proof is of our own executor, on small plans that do all that the plan does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.cluster.fast_domains import in_nodes_of
from meshwright.cluster.load import load_cluster
from meshwright.errors import InputError, Problem, UnsupportedError, near_names
from meshwright.plans.forms.dtypes import Dtypes
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.resolve import Resolved, resolve_with
from meshwright.plans.rules.stack_limits.meshwright import unsupported_by_runtime
from meshwright.plans.shrink.covering_sets import Combination
from meshwright.plans.shrink.features import Feature
from meshwright.plans.shrink.small_exchanges import rates_of, steps_of
from meshwright.plans.shrink.small_layout_plans import small_layout_plans
from meshwright.plans.shrink.small_plan_pairs import ComparedPlans, compared_plans
from meshwright.plans.shrink.small_plans import SmallPlan, SmallPlans, small_plans
from meshwright.program.lowering.lower_plan import lower
from meshwright.program.lowering.plan_parts import planned_exchange
from meshwright.program.program import Program
from meshwright.stack.load import own_stack
from meshwright.stack.stack import Stack
from meshwright.stack.state_types import changed_types
from meshwright.verbs.load_plan import load, problems_of

if TYPE_CHECKING:
    from meshwright.runtime.verify.case_result import Outcome

Progress = Callable[[str, float], None]
MOST_RANKS = 16
PROVES = (
    "This proves Meshwright's own executor. What an exported job does in its framework is checked by "
    "`meshwright export PLAN --to TARGET --check=dry`."
)


@dataclass(frozen=True)
class Verified:
    """Outcomes of all small plans; which combinations of the plan's ``features`` they cover."""

    trials: tuple[tuple[SmallPlan, "Outcome"], ...]
    features: Mapping[str, Feature]
    covered: tuple[Combination, ...]
    not_covered: tuple[Combination, ...]
    remarks: tuple[Problem, ...]

    @property
    def equal(self) -> bool:
        """True if every small plan equals one device."""
        return all(outcome.equal for _, outcome in self.trials)

    def to_json(self) -> dict[str, Any]:
        """Return the public form. ``parameter`` has the largest error; null where a rank failed."""
        _, worst = max(self.trials, key=lambda trial: trial[1].worst.value)
        shown = worst.to_json()
        return {
            "equal": self.equal,
            "max_relative_error": shown["max_relative_error"],
            "parameter": shown["parameter"],
            "bound": shown["bound"],
            "plans": [_trial_data(small, outcome) for small, outcome in self.trials],
            "features": {name: feature.text for name, feature in self.features.items()},
            "combinations_covered": [list(one) for one in self.covered],
            "combinations_not_covered": [list(one) for one in self.not_covered],
            "remarks": [problem.to_json() for problem in self.remarks],
            "proves": PROVES,
        }


def verified(resolved: Resolved, ranks: int, progress: Progress) -> Verified:
    """Prove a legal plan on at most ``ranks`` local ranks. Raises UnsupportedError for what can not be run."""
    if not 1 <= ranks <= MOST_RANKS:
        rule = f"must be a whole number from 1 to {MOST_RANKS}"
        raise InputError(Problem("ranks", ranks, rule, "8: every three features of a plan meet"))
    model = resolved.setting.model
    found = unsupported_by_runtime(resolved.long, model, proof=True)
    wrong = [problem for problem in found if problem.severity == "error"]
    if wrong:
        raise UnsupportedError(wrong)
    setting = resolved.setting
    small = _small_plans(resolved, ranks)
    programs = [program_of(plan, setting.stack) for plan in small.plans]
    trials = []
    for number, (plan, program) in enumerate(zip(small.plans, programs, strict=True)):
        label = f"plan {number + 1} of {len(programs)}: {plan.text}"
        trials.append((plan, _tried(program, plan, label, number / len(programs), progress)))
    return Verified(
        tuple(trials),
        small.features,
        small.covering.covered,
        small.covering.not_covered,
        tuple(dict.fromkeys((*found, *resolved.warnings))),
    )


DATA_PARALLEL = "data-parallel"


def plan_against(against: str | Path) -> Resolved | None:
    """Return the plan in a file to compare with; None for ``data-parallel``. Raise InputError."""
    name = str(against)
    if name == DATA_PARALLEL:
        return None
    if not Path(name).exists():
        near = near_names(name, [DATA_PARALLEL])
        hint = f"did you mean {DATA_PARALLEL}?" if near else f"{DATA_PARALLEL}, or the path of a plan"
        raise InputError(Problem("against", name, f"is neither {DATA_PARALLEL} nor a file", hint))
    with problems_of("against"):
        return load(name)


@dataclass(frozen=True)
class ComparedModels:
    """The largest relative difference between the models of two plans, trained on equal data without clipping."""

    against: str
    value: float
    parameter: str
    small: ComparedPlans
    bound: float

    @property
    def equal(self) -> bool:
        """True if the models are equal but for rounding."""
        return self.value <= self.bound

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        return {
            "equal": self.equal,
            "max_relative_error": self.value if isfinite(self.value) else None,
            "parameter": self.parameter,
            "bound": self.bound,
            "against": self.against,
            "steps": self.small.steps,
            "plans": [plan.to_data() for plan in self.small.plans],
        }


def compared(resolved: Resolved, against: str, other: Resolved | None, progress: Progress) -> ComparedModels:
    """Compare the models of two plans; without ``other`` with the same plan without exchanges of its own."""
    long = resolved.long
    second = long.model_copy(update={"synchronise": ()}) if other is None else other.long
    for plan, model in ((long, resolved.setting.model), (second, (other or resolved).setting.model)):
        wrong = [p for p in unsupported_by_runtime(plan, model, proof=True) if p.severity == "error"]
        if wrong:
            raise UnsupportedError(wrong)
    small = compared_plans(long, second, resolved.setting.model)
    try:
        from meshwright.runtime.verify.compare_models import SAME, models_apart
        from meshwright.runtime.verify.verify_case import VerifyCase
    except ImportError as missing:
        rule = f"needs {missing.name}, which is not installed"
        raise InputError(Problem("verify", missing.name, rule, "pip install 'meshwright[run]'")) from missing
    stacks = resolved.setting.stack, (other or resolved).setting.stack
    rates = rates_of([entry for plan in small.plans for entry in plan.synchronise], small.steps)
    trials = [
        VerifyCase(
            program_of(SmallPlan(plan, small.model, ()), stack), small.model, steps=small.steps, rates=rates
        )
        for plan, stack in zip(small.plans, stacks, strict=True)
    ]
    error = models_apart(trials[0], trials[1], progress)
    return ComparedModels(against, error.value, error.of, small, SAME)


def _small_plans(resolved: Resolved, ranks: int) -> SmallPlans:
    """Return the small plans in which the features of a plan meet."""
    setting, plan = resolved.setting, _in_own_types(resolved)
    if len(plan.layouts) > 1:
        return small_layout_plans(plan, setting.model, ranks)
    form = planned_exchange(plan, setting.model, setting.cluster, setting.workload, setting.stack)
    return small_plans(plan, setting.model, ranks, forwarding=form == "hierarchical")


def _in_own_types(resolved: Resolved) -> LongPlan:
    """Return a plan that writes the element types by which it differs from its stack, and no others."""
    setting, plan = resolved.setting, resolved.long
    changed = changed_types(setting.stack, setting.workload.precision, plan.written_types)
    return plan.model_copy(update={"dtypes": Dtypes.model_validate(changed) if changed else None})


def program_of(small: SmallPlan, of: Stack) -> Program:
    """Return the Program of a small plan, in which copies of tokens travel as with the stack of the large one."""
    cluster, stack = load_cluster(small.long.cluster), own_stack(of)
    cluster = in_nodes_of(cluster, small.node) if small.node else cluster
    legal = resolve_with(small.long, small.model, cluster, stack)
    return lower(legal.long, small.model, cluster, legal.setting.workload, stack)


def _tried(program: Program, small: SmallPlan, label: str, part: float, progress: Progress) -> "Outcome":
    try:
        from meshwright.runtime.verify.run_state_case import run_case_and_states
        from meshwright.runtime.verify.verify_case import VerifyCase
    except ImportError as missing:
        rule = f"needs {missing.name}, which is not installed"
        raise InputError(Problem("verify", missing.name, rule, "pip install 'meshwright[run]'")) from missing
    progress(label, part)
    steps = steps_of(program.synchronise)
    trial = VerifyCase(program, small.model, steps=steps, rates=rates_of(program.synchronise, steps))
    return run_case_and_states(trial, lambda what, _: progress(f"{label}, {what}", part))


def _trial_data(small: SmallPlan, outcome: "Outcome") -> dict[str, Any]:
    arch = small.model.architecture
    sizes = {"layers": arch.layers, "hidden": arch.hidden, "heads": arch.heads, "kv_heads": arch.kv_heads}
    return {
        "plan": small.text,
        "ranks": small.ranks,
        "features": list(small.features),
        "model": sizes | {"vocab": arch.vocab},
        **outcome.to_json(),
        "synchronise": _exchange_data(small, outcome),
        "long": small.long.to_data(),
    }


def _exchange_data(small: SmallPlan, outcome: "Outcome") -> list[dict[str, Any]]:
    """Return what was exchanged for each entry of a small plan: bytes of all ranks."""
    entries = small.long.synchronise
    apart = outcome.from_exact.value
    return [
        {
            "state": entries[one.entry].state,
            "over": entries[one.entry].axis,
            "exchanges": one.exchanges,
            "logged_bytes": one.logged_bytes,
            "predicted_bytes": one.predicted_bytes,
            "difference_from_exact": apart if isfinite(apart) else None,
        }
        for one in outcome.exchanges
    ]
