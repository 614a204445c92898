"""Search one space of plans: closed forms for most, simulation for the others unless a lower bound rules them out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from meshwright.cluster.cluster import Cluster
from meshwright.cost.closed_form.evaluate_plans import Estimates, evaluate
from meshwright.cost.lower_bounds.coarse_time_and_memory import CoarseBounds, VariantBounds
from meshwright.cost.lower_bounds.context_parallel_pruning import undominated_forms
from meshwright.cost.lower_bounds.state_memory import may_fit
from meshwright.cost.lower_bounds.tight_step_time import TightBounds
from meshwright.cost.memory.memory_breakdown import usable_device_bytes
from meshwright.cost.operators.price_plans import fabric_of
from meshwright.cost.pipeline_time.gpipe_1f1b_interleaved import have_forms
from meshwright.cost.uncertainty.step_error import pair_interval
from meshwright.errors import InputError, Problem
from meshwright.placement.node_order.nearest_first import MOST_NODES, near_together
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.choices.plan_choice import Bools
from meshwright.plans.forms.short import NodeOrder
from meshwright.plans.setting import Setting
from meshwright.present.plan_answers.layout_text import DEGREES
from meshwright.schedules.choice import ScheduleChoice
from meshwright.search.algorithms.candidates import SpaceBounds
from meshwright.search.algorithms.exhaustive import RankedPlans, search_all
from meshwright.search.algorithms.expensive_best_first import add_expensive_plans
from meshwright.search.algorithms.lower_bound_pruning import (
    BestSoFar,
    Heard,
    SearchRequest,
    search_bounded,
)
from meshwright.search.algorithms.shared_evaluation import Steps, run_search
from meshwright.search.space.constraints import Forbidden, Keep
from meshwright.search.space.legal_plans import divisors, enumerate_space
from meshwright.search.space.plan_space import Space
from meshwright.search.space.searched_schedules import (
    AUTO,
    SearchedSchedules,
    all_schedules,
    named_schedules,
    usual_schedules,
    with_knobs,
)
from meshwright.search.space.variants import Variants, all_variants, are_usual, usual_variants
from meshwright.units import format_seconds
from meshwright.verbs.plan.progress_time import with_remaining_time
from meshwright.verbs.plan.simulate_candidates import candidates_to_simulate, simulated_lower_bound

Progress = Callable[[str, float], None]

KNOBS: Mapping[str, Callable[[float | str], float | str]] = {
    "memory_limit": float,
    "unit": int,
    "in_flight": int,
    "step_validation": str,
    "vocabulary": str,
}
"""Knobs of a schedule that a question can fix, and what their values are."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a search: fixed and forbidden choices, and schedules (``auto``: all, None: the usual).

    ``knobs`` of a schedule are fixed too: those that do not have them are left out. ``top`` plans are to be the best
    of all. ``whole``: every plan of the usual variants that may fit is scored, for those who ask what is best when
    something changes; ``wider``: and those of other variants that may be the best.
    """

    keep: Keep
    schedules: str | None = None
    top: int = 5
    knobs: Mapping[str, float | str] = field(default_factory=dict)
    whole: bool = False
    wider: bool = False
    forbid: Forbidden = field(default_factory=dict)


def search_scope(
    keep: Keep, schedules: str | None, top: int, setting: Setting, forbid: Forbidden | None = None
) -> Scope:
    """Return the scope of a question; a kept schedule is the only one. Raise InputError with all problems."""
    kept = keep.get("schedule")
    knobs = {name: value(str(keep[name])) for name, value in KNOBS.items() if name in keep}
    apart = ("schedule", "memory_limit", "in_flight", "step_validation", "vocabulary")
    rest = {name: value for name, value in keep.items() if name not in apart}
    if kept is not None and schedules is not None:
        rule = f"and --keep schedule={kept}: the schedule is said twice"
        raise InputError(Problem("schedule", schedules, rule, "say it once"))
    scope = Scope(rest, schedules if kept is None else str(kept), top, knobs, forbid=forbid or {})
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
    """Yield problems of a custom schedule that no plan of this question can have."""
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


def searched_schedules(scope: Scope, setting: Setting, field: str = "schedule") -> SearchedSchedules:
    """Return the schedules of a scope. Raise InputError."""
    found = _schedules(scope, setting, field)
    if not scope.knobs:
        return found
    with_the_knobs = with_knobs(found, scope.knobs, setting.stack)
    if not with_the_knobs:
        names = ", ".join(dict.fromkeys(choice.name for choice in found))
        rule = f"{setting.stack.id} runs none of {names} with it"
        hint = "--schedule auto, or a schedule and a stack that have it"
        raise InputError([Problem(f"keep.{name}", value, rule, hint) for name, value in scope.knobs.items()])
    return with_the_knobs


def _schedules(scope: Scope, setting: Setting, field: str) -> SearchedSchedules:
    if scope.schedules is None:
        return usual_schedules(setting.stack)
    if scope.schedules != AUTO:
        return named_schedules(scope.schedules, setting.stack, field)
    layers = setting.model.architecture.layers
    return all_schedules(setting.stack, [pp for pp in divisors(setting.cluster.devices) if pp <= layers])


def searched_space(
    scope: Scope, setting: Setting, sizes: Sequence[int] = (), batches: Sequence[int] = ()
) -> Space:
    """All legal plans of a scope. Base plans without closed forms are searched with usual variants and choices.

    ``sizes`` and ``batches``: several in place of the setting's own, as in ``enumerate_space``.
    """
    schedules, usual = searched_schedules(scope, setting), usual_variants(setting, scope.keep)
    variants = usual if scope.whole and not scope.wider else all_variants(setting, scope.keep)
    space = enumerate_space(setting, scope.keep, schedules, variants, scope.forbid, sizes, batches)
    space = replace(space, base=replace(space.base, node_order=usual_order(setting.cluster)))
    unusual, formless = ~are_usual(space.variants, space.base, usual), ~have_forms(space.base)
    space = space.without(unusual[:, None] & formless[None, :])
    return space.choosing(~formless[None, :] | _usual_later(space, usual)[:, None])


def _usual_later(space: Space, usual: Variants) -> Bools:
    """Return the mask of usual codes of the deferred choice: (values,)."""
    known = usual.values[space.later.column]
    return np.array([value in known for value in space.base.values[space.later.column]], dtype=np.bool_)


def has_closed_form(space: Space) -> Bools:
    """Return the mask of plans with closed forms: (variants, n)."""
    on_devices = [not variant.values(space.base)["offload"].rule.share for variant in space.variants]
    return np.array(on_devices, dtype=np.bool_)[:, None] & have_forms(space.base)[None, :]


@dataclass(frozen=True, slots=True)
class PrunedSpace:
    """The plans of a space that have closed forms and that no other form beats, with their bounds."""

    left: Space
    bounds: SpaceBounds


def search(scope: Scope, setting: Setting, progress: Progress | None = None) -> tuple[Space, RankedPlans]:
    """Return all legal plans, and scores of the possible best ones; report progress to ``progress``.

    An interrupt leaves what was found till then.
    """
    space = searched_space(scope, setting)
    return space, run_search(search_steps(space, scope, setting, progress=progress), scoring(setting))


def search_steps(
    space: Space,
    scope: Scope,
    setting: Setting,
    pruned: PrunedSpace | None = None,
    progress: Progress | None = None,
) -> Steps[RankedPlans]:
    """Search a space of legal plans, and yield the plans with closed forms whose scores it needs.

    ``pruned``: what is left of the plans with closed forms, where that is known already.
    """
    cheap = has_closed_form(space)
    if cheap.all():
        return (yield from _search_formed(space, scope, setting, pruned, progress))
    found = yield from _search_formed(space.only(cheap), scope, setting, pruned, progress)
    found, dear = candidates_to_simulate(space.only(~cheap), found, scope.top, setting, usable_bytes(setting))
    if found.interrupted or not len(dear):
        return found

    def floor(plans: PlanArrays, enough: float) -> TightBounds:
        return simulated_lower_bound(plans, setting, enough)

    batch = setting.workload.global_batch
    return add_expensive_plans(found, dear, floor, scoring(setting), usable_bytes(setting), scope.top, batch)


def usual_order(cluster: Cluster) -> NodeOrder | None:
    """Near nodes together, which all plans are searched with; None where that is how the cluster has them."""
    fabric = fabric_of(cluster)
    if fabric is None or fabric.alike or fabric.nodes > MOST_NODES:
        return None
    order = near_together(fabric)
    return None if order == tuple(range(fabric.nodes)) else order


def _search_formed(
    space: Space, scope: Scope, setting: Setting, pruned: PrunedSpace | None, progress: Progress | None
) -> Steps[RankedPlans]:
    """Search plans that have closed forms."""
    if scope.whole:
        variants = usual_variants(setting, scope.keep)
        usual, later = are_usual(space.variants, space.base, variants), _usual_later(space, variants)
        of_usual, others = space.without(~usual[:, None]), space.without(usual[:, None])
        found = search_all(of_usual.choosing(later), scoring(setting), lambda plans: may_fit(plans, setting))
        part = replace(scope, whole=False)
        for rest in (others, of_usual.choosing(~later)) if scope.wider else ():
            found = found.joined((yield from _search_formed(rest, part, setting, None, progress)))
        return found
    pruned = pruned or pruned_space(space, setting)
    request = SearchRequest(scope.top, pair_interval(setting).high)
    usable, heard = usable_bytes(setting), _progress_of(progress)
    found = yield from search_bounded(pruned.left, pruned.bounds, usable, request, heard)
    return replace(found, slower=found.slower + len(space) - len(pruned.left))


def pruned_space(space: Space, setting: Setting) -> PrunedSpace:
    """Return what is left to search of a space of plans with closed forms; bounds are computed when asked for."""
    left = without_slower_context_forms(space, setting)
    return PrunedSpace(left, lambda of: space_bounds(of, setting, usable_bytes(setting)))


def without_slower_context_forms(space: Space, setting: Setting) -> Space:
    """Return the space without context-parallel forms that another form beats in time and memory.

    Those that are slower than another one are marked.
    """
    worth = undominated_forms(space.base, space.later.legal, setting)
    left = space.choosing(worth.unbeaten)
    return replace(left, later=replace(left.later, slower=left.later.legal & ~worth.quick))


def space_bounds(space: Space, setting: Setting, usable: float = inf) -> Iterator[CoarseBounds]:
    """Bounds of each variant of all base plans, which have closed forms. Plans of more bytes get no times."""
    floors = VariantBounds(space.base, setting, space.later.legal, usable)
    for variant in space.variants:
        yield floors.of(space.base.with_columns(variant.of(space.base)))


def _progress_of(progress: Progress | None) -> Heard:
    """Tells how the search goes; the largest number of open plans so far is all of the work."""
    most = [1]
    told = None if progress is None else with_remaining_time(progress)

    def heard(best: BestSoFar, left: int) -> None:
        most[0] = max(most[0], left)
        if told is not None:
            told(f"{_best_words(best)}, {left:,} to price", 1 - left / most[0])

    return heard


def _best_words(best: BestSoFar) -> str:
    """Return time and degrees of the best plan so far, as ``best 64.293 s pp8 tp2 cp4``."""
    if best.step_s == inf:
        return "nothing fits so far"
    degrees = {name: int(getattr(best.plans, name)[best.row]) for name in DEGREES}
    words = " ".join(f"{name}{degree}" for name, degree in degrees.items() if degree > 1)
    return f"best {format_seconds(best.step_s)} {words or 'one device'}"


def scoring(setting: Setting) -> Callable[[PlanArrays], Estimates]:
    """Return a function that prices plans; plans that do not fit get no time."""
    return lambda plans: evaluate(plans, setting, only_fitting=True)


def usable_bytes(setting: Setting) -> float:
    """Return the usable memory of a device in bytes."""
    return usable_device_bytes(setting.cluster)
