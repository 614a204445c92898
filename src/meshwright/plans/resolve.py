"""Resolve the names in a plan file to model, cluster and stack, and return a legal plan or all its problems."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from meshwright.cluster.cluster import Cluster
from meshwright.cluster.load import load_cluster
from meshwright.errors import InputError, PlanError, Problem, attempted
from meshwright.model.graph import ModelGraph
from meshwright.model.load import load_model
from meshwright.plans.files.custom_schedule_file import with_custom_lists_read
from meshwright.plans.files.expert_pairs_file import with_routing_read
from meshwright.plans.files.strict_types import Strict
from meshwright.plans.forms.conversion import expand, shorten
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.rules.check_plan import problems_by_rule
from meshwright.plans.rules.expert_order import with_expert_order_read
from meshwright.plans.rules.not_in_this_release import workload_of
from meshwright.plans.setting import Setting
from meshwright.plans.tried_suggestions import Judge, NamedProblem, SuggestionTrial, no_problems
from meshwright.stack.load import load_stack
from meshwright.stack.stack import Stack

N = TypeVar("N", bound=Strict)


@dataclass(frozen=True, slots=True)
class Nouns:
    """The model, cluster and stack of a plan. None where one could not be loaded: ``problems`` says why."""

    model: ModelGraph | None
    cluster: Cluster | None
    stack: Stack | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Resolved:
    """A legal plan with its setting. ``short`` is None where the plan has no short form."""

    long: LongPlan
    short: ShortPlan | None
    setting: Setting
    warnings: tuple[Problem, ...] = ()


def resolve(plan: ShortPlan | LongPlan, *, stack_binds: bool = False) -> Resolved:
    """Load the nouns a plan names, expand it and check it. Raises ``InputError`` with all problems.

    What its stack cannot do is a warning, and an error where the stack ``stack_binds``.
    """
    nouns = load_nouns(plan)
    model, cluster, stack = nouns.model, nouns.cluster, nouns.stack
    if model is None or cluster is None or stack is None:
        raise InputError(nouns.problems)
    return resolve_with(plan, model, cluster, stack, stack_binds=stack_binds)


def resolve_with(
    plan: ShortPlan | LongPlan,
    model: ModelGraph,
    cluster: Cluster,
    stack: Stack,
    *,
    stack_binds: bool = False,
    further: Judge = no_problems,
) -> Resolved:
    """Expand and check a plan whose nouns are at hand, as ``resolve`` does.

    ``further`` are problems besides the plan's that a suggestion must not bring: those of the file it was read from.
    """
    long = plan if isinstance(plan, LongPlan) else expand(plan, model.architecture)
    found = _found(plan, long, model, cluster, stack, further, stack_binds=stack_binds)
    errors = [problem for problem in found if problem.severity == "error"]
    if errors:
        raise PlanError(errors)
    warnings = tuple(problem for problem in found if problem.severity == "warning")
    return Resolved(
        long, shorten(long), Setting.of(model, cluster, workload_of(long), stack, long.dtypes), warnings
    )


def _found(
    plan: ShortPlan | LongPlan,
    long: LongPlan,
    model: ModelGraph,
    cluster: Cluster,
    stack: Stack,
    further: Judge,
    *,
    stack_binds: bool,
) -> list[Problem]:
    """Return the problems of a plan; suggestions for one with a short form were tried on it."""

    def judge(plan: ShortPlan) -> list[NamedProblem]:
        try:
            changed = expand(plan, arch)
        except PlanError as error:
            return [("expand", problem) for problem in error.problems]
        own = problems_by_rule(changed, model, cluster, stack, stack_binds=stack_binds)
        return [*own, *further(plan)]

    arch = model.architecture
    found = problems_by_rule(long, model, cluster, stack, stack_binds=stack_binds)
    short = (plan if isinstance(plan, ShortPlan) else shorten(plan)) if found else None
    if short is None:
        return [problem for _, problem in found]
    experts = arch.moe.experts if arch.moe else 1
    return SuggestionTrial(short, found, cluster.devices, experts, stack, judge).with_tried_suggestions()


def with_files_read(plan: ShortPlan | LongPlan, folder: Path) -> ShortPlan | LongPlan:
    """Return the plan with the content of its files; relative names are from ``folder`` if there.

    Raises InputError where lists of a schedule, an order of experts, or what was counted of routers can not be read.
    """
    found = with_nouns_from(plan, folder)
    return with_routing_read(with_expert_order_read(with_custom_lists_read(found, folder), folder), folder)


def with_nouns_from(plan: N, folder: Path) -> N:
    """Return a plan of any kind with the paths of its model, cluster and stack from ``folder``, if they are there."""
    found = {
        name: str(folder / getattr(plan, name))
        for name in ("model", "cluster", "stack")
        if _is_file(folder / getattr(plan, name))
    }
    return plan.model_copy(update=found)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file() or (path / "config.json").is_file()
    except (OSError, ValueError):
        return False


def load_nouns(plan: ShortPlan | LongPlan) -> Nouns:
    """Load model, cluster and stack; the problems of all three are collected."""
    problems: list[Problem] = []
    model = attempted(lambda: load_model(plan.model), problems)
    cluster = attempted(lambda: load_cluster(plan.cluster), problems)
    stack = attempted(lambda: load_stack(plan.stack), problems)
    return Nouns(model, cluster, stack, tuple(problems))
