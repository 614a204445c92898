"""From the names in a plan file to the nouns they mean, and a legal plan or all its problems."""

from dataclasses import dataclass
from pathlib import Path

from meshwright.cluster.graph import Cluster
from meshwright.cluster.load import load_cluster
from meshwright.errors import InputError, PlanError, Problem, attempted
from meshwright.model.graph import ModelGraph
from meshwright.model.load import load_model
from meshwright.plan.check import check_plan
from meshwright.plan.check_experts import with_order
from meshwright.plan.expand import expand, shorten
from meshwright.plan.long import LongPlan
from meshwright.plan.routing_file import with_routing
from meshwright.plan.setting import Setting
from meshwright.plan.short import ShortPlan
from meshwright.plan.supported import workload_of
from meshwright.plan.written_lists import with_lists
from meshwright.stack.load import load_stack
from meshwright.stack.stack import Stack


@dataclass(frozen=True, slots=True)
class Nouns:
    """What a plan names, loaded. None where it could not be: ``problems`` says why."""

    model: ModelGraph | None
    cluster: Cluster | None
    stack: Stack | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Resolved:
    """A legal plan with what it is for. ``short`` is None where the plan can not be said in short."""

    long: LongPlan
    short: ShortPlan | None
    setting: Setting
    warnings: tuple[Problem, ...] = ()


def resolve(plan: ShortPlan | LongPlan) -> Resolved:
    """Load the nouns a plan names, expand it and check it. Raises ``InputError`` with all problems."""
    nouns = load_nouns(plan)
    model, cluster, stack = nouns.model, nouns.cluster, nouns.stack
    if model is None or cluster is None or stack is None:
        raise InputError(nouns.problems)
    return resolve_with(plan, model, cluster, stack)


def resolve_with(plan: ShortPlan | LongPlan, model: ModelGraph, cluster: Cluster, stack: Stack) -> Resolved:
    """Expand and check a plan whose nouns are at hand. Raises ``InputError`` with all problems."""
    long = plan if isinstance(plan, LongPlan) else expand(plan, model.architecture)
    found = check_plan(long, model, cluster, stack)
    errors = [problem for problem in found if problem.severity == "error"]
    if errors:
        raise PlanError(errors)
    warnings = tuple(problem for problem in found if problem.severity == "warning")
    return Resolved(long, shorten(long), Setting.of(model, cluster, workload_of(long), stack), warnings)


def beside(plan: ShortPlan | LongPlan, folder: Path) -> ShortPlan | LongPlan:
    """The plan with relative file names meant from ``folder``, where such a file is there, and with what files say.

    Raises InputError where lists of a schedule, an order of experts, or what was counted of routers can not be read.
    """
    found = {
        name: str(folder / getattr(plan, name))
        for name in ("model", "cluster", "stack")
        if _is_file(folder / getattr(plan, name))
    }
    return with_routing(with_order(with_lists(plan.model_copy(update=found), folder), folder), folder)


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
