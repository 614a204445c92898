"""Search one space of plans: all that have closed forms, the others as far as their lower bound lets them win."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.graph import Cluster
from meshwright.cost.bounds import may_fit
from meshwright.cost.constants import constants
from meshwright.cost.evaluate import Estimates, evaluate
from meshwright.cost.intervals import pair_interval
from meshwright.cost.pipeline import has_form
from meshwright.cost.pricing import fabric_of
from meshwright.cost.quick_floor import QuickFloor, quick_floor
from meshwright.cost.step_floor import Floor, step_floor
from meshwright.errors import InputError, Problem
from meshwright.placement.near import MOST_NODES, near_together
from meshwright.plan.arrays import PlanArrays
from meshwright.plan.setting import Setting
from meshwright.plan.short import NodeOrder
from meshwright.schedule.choice import ScheduleChoice
from meshwright.search.best_below import best_below
from meshwright.search.best_first import widen
from meshwright.search.bounded import Wanted, search_bounded
from meshwright.search.exhaustive import Found, search_all
from meshwright.search.schedules import (
    AUTO,
    Searched,
    all_schedules,
    named_schedules,
    usual_schedules,
    with_knobs,
)
from meshwright.search.space import Keep, Space, divisors, enumerate_space

KNOBS: Mapping[str, Callable[[float | str], float | str]] = {
    "memory_limit": float,
    "unit": int,
    "step_validation": str,
}
"""Knobs of a schedule that a question can fix, and what their values are."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is searched: choices that are fixed, and schedules by name (``auto``: all, None: the usual ones).

    ``knobs`` of a schedule are fixed too: those that do not have them are left out. ``top`` plans are to be the best
    of all. ``whole``: every plan that may fit is scored, for those who ask what is best when something changes.
    """

    keep: Keep
    schedules: str | None = None
    top: int = 5
    knobs: Mapping[str, float | str] = field(default_factory=dict)
    whole: bool = False


def scope_of(keep: Keep, schedules: str | None, top: int, setting: Setting) -> Scope:
    """The scope of a question; a schedule that is kept is the only one. Raises InputError with all problems."""
    kept = keep.get("schedule")
    knobs = {name: value(keep[name]) for name, value in KNOBS.items() if name in keep}
    apart = ("schedule", "memory_limit", "step_validation")
    rest = {name: value for name, value in keep.items() if name not in apart}
    if kept is not None and schedules is not None:
        rule = f"and --keep schedule={kept}: the schedule is said twice"
        raise InputError(Problem("schedule", schedules, rule, "say it once"))
    scope = Scope(rest, schedules if kept is None else str(kept), top, knobs)
    field = "schedule" if kept is None else "keep.schedule"
    searched = searched_schedules(scope, setting, field)
    problems = [problem for choice in searched for problem in _unlike(choice, rest, knobs, setting, field)]
    if problems:
        raise InputError(problems)
    if rest.get("pp") == 1 and all(choice.name != "1f1b" for choice in searched):
        rule = "a schedule needs pp > 1, and keep.pp = 1: with one pipeline rank there is nothing to schedule"
        raise InputError(Problem(field, scope.schedules, rule, "--keep pp=2 or more, or schedule 1f1b"))
    return scope


def _unlike(
    choice: ScheduleChoice, keep: Keep, knobs: Mapping[str, float | str], setting: Setting, field: str
) -> Iterator[Problem]:
    """Lists that somebody wrote and that no plan of this question can have."""
    if choice.written is None or choice.kind.only is None:
        return
    ranks, count = choice.kind.only
    devices, batch, layers = (
        setting.cluster.devices,
        setting.workload.global_batch,
        setting.model.architecture.layers,
    )
    fixed = {"pp": ranks, "virtual_stages": choice.kind.fixed_chunks}
    for name, value in fixed.items():
        if keep.get(name, value) != value:
            rule = f"{choice.name} has {name} = {value}"
            yield Problem(f"keep.{name}", keep[name], rule, f"--keep {name}={value}, or leave it out")
    stages = ranks * (choice.kind.fixed_chunks or 1) // choice.kind.chains
    if stages > layers:
        rule = f"has {stages} stages > {layers} layers of {setting.model.name}"
        yield Problem(field, choice.name, rule, f"lists of {layers} stages or fewer")
    if devices % ranks:
        rule = f"has lists of {ranks} pipeline ranks, which do not divide {devices} devices"
        yield Problem(field, choice.name, rule, f"a multiple of {ranks} devices")
    if batch % count:
        rule = f"has {count} micro-batches, which do not divide global_batch = {batch}"
        yield Problem(field, choice.name, rule, f"--global-batch {-(-batch // count) * count}")
    if "memory_limit" in knobs:
        yield from choice.written.beyond(float(knobs["memory_limit"]))


def searched_schedules(scope: Scope, setting: Setting, field: str = "schedule") -> Searched:
    """The schedules of a scope. Raises InputError."""
    found = _schedules(scope, setting, field)
    if not scope.knobs:
        return found
    turned = with_knobs(found, scope.knobs, setting.stack)
    if not turned:
        names = ", ".join(dict.fromkeys(choice.name for choice in found))
        rule = f"{setting.stack.id} runs none of {names} with it"
        hint = "--schedule auto, or a schedule and a stack that have it"
        raise InputError([Problem(f"keep.{name}", value, rule, hint) for name, value in scope.knobs.items()])
    return turned


def _schedules(scope: Scope, setting: Setting, field: str) -> Searched:
    if scope.schedules is None:
        return usual_schedules(setting.stack)
    if scope.schedules != AUTO:
        return named_schedules(scope.schedules, setting.stack, field)
    layers = setting.model.architecture.layers
    return all_schedules(setting.stack, [pp for pp in divisors(setting.cluster.devices) if pp <= layers])


def search(scope: Scope, setting: Setting) -> tuple[Space, Found]:
    """All legal plans, and the scores of those that may be the best."""
    space = enumerate_space(setting, scope.keep, searched_schedules(scope, setting))
    space = replace(space, plans=replace(space.plans, node_order=usual_order(setting.cluster)))
    formed = np.array([has_form(choice) for choice in space.plans.schedules], dtype=np.bool_)
    if formed.all():
        return space, _search_formed(space, scope, setting)
    cheap = formed[space.plans.schedule]
    found = _search_formed(replace(space, plans=space.plans.take(cheap)), scope, setting)
    dear = space.plans.take(~cheap)
    if not len(dear):
        return space, found
    dear = dear.take(may_fit(dear, setting))

    def floor(plans: PlanArrays, enough: float) -> Floor:
        return step_floor(plans, setting, enough)

    batch = setting.workload.global_batch
    return space, widen(found, dear, floor, _scoring(setting), _usable(setting), scope.top, batch)


def usual_order(cluster: Cluster) -> NodeOrder | None:
    """Near nodes together, which all plans are searched with; None where that is how the cluster has them."""
    fabric = fabric_of(cluster)
    if fabric is None or fabric.alike or fabric.nodes > MOST_NODES:
        return None
    order = near_together(fabric)
    return None if order == tuple(range(fabric.nodes)) else order


def _search_formed(space: Space, scope: Scope, setting: Setting) -> Found:
    """Search plans that have closed forms."""
    if scope.whole:
        return search_all(space, _scoring(setting), lambda plans: may_fit(plans, setting))
    usable = _usable(setting)

    def bounds(plans: PlanArrays) -> QuickFloor:
        return quick_floor(plans, setting, usable)

    wanted = Wanted(scope.top, pair_interval(setting).high)
    return search_bounded(space, bounds, _scoring(setting), usable, wanted)


@dataclass(frozen=True, slots=True)
class BestPlan:
    """The plan at a row, and the seconds of its step."""

    plans: PlanArrays
    row: int
    step_s: float


def least_step_s(scope: Scope, setting: Setting) -> float | None:
    """No plan that may fit takes less; infinite where none may, 0 where no bound is known, None: none is legal."""
    plans = _legal_plans(scope, setting)
    if not len(plans):
        return None
    return float(_floors(plans, setting).min()) if _all_formed(plans) else 0.0


def best_plan(scope: Scope, setting: Setting, enough: float) -> BestPlan | None:
    """The best plan, without what explains it; None where nothing fits, or where it takes ``enough`` seconds or more.

    Among plans without closed forms it is found whatever is enough.
    """
    plans = _legal_plans(scope, setting)
    if _all_formed(plans):
        best = best_below(_floors(plans, setting), plans.take, _scoring(setting), enough)
        return None if best is None else BestPlan(plans, best.row, best.step_s)
    _, found = search(replace(scope, top=1), setting)
    rows = found.top(1)
    return BestPlan(found.plans, rows[0], float(found.step_s[rows[0]])) if rows else None


def _legal_plans(scope: Scope, setting: Setting) -> PlanArrays:
    return enumerate_space(setting, scope.keep, searched_schedules(scope, setting)).plans


def _all_formed(plans: PlanArrays) -> bool:
    return all(map(has_form, plans.schedules))


def _floors(plans: PlanArrays, setting: Setting) -> NDArray[np.float64]:
    """Seconds that a step is no shorter than, infinite for plans that can not fit: (n,)."""
    return quick_floor(plans, setting, _usable(setting)).step_s


def _scoring(setting: Setting) -> Callable[[PlanArrays], Estimates]:
    return lambda plans: evaluate(plans, setting, only_fitting=True)


def _usable(setting: Setting) -> float:
    return constants()["usable_memory"] * setting.cluster.pool.device.memory_bytes
