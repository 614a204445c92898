"""Select plans to probe with a plan: near ones that will run and differ most from it.

Near ones are likely to fit and predicted to be at most a quarter slower. Where the plan has a short form these are the
best of a search, which has one plan of each layout, and where those are too few also the plan's neighbours
(``search/nearby/long_plan_neighbours.py``); a plan in full has neighbours alone, which keep its stages and rules of
layers.
"""

from collections.abc import Callable, Iterable

from meshwright.cost.uncertainty.memory_error import LIKELY
from meshwright.errors import InputError
from meshwright.plans.files.plan_file import Plan
from meshwright.plans.resolve import Resolved, resolve_with
from meshwright.result import Report
from meshwright.search.nearby.diverse_subset import diverse_subset
from meshwright.search.nearby.long_plan_neighbours import neighbours
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer
from meshwright.verbs.predict.predict_plan import predicted

CONSIDERED = 64
SLOWEST = 1.25

Near = Iterable[tuple[Plan, Report]]


def select_probe_plans(
    resolved: Resolved, step_s: float, count: int, will_run: Callable[[Plan], bool]
) -> list[Plan]:
    """Return up to ``count`` diverse plans near one of ``step_s`` seconds for which ``will_run`` is true."""
    plan, others, chosen = resolved.short or resolved.long, [], []
    for found in (_searched, _neighbours):
        near = [other for other, report in found(resolved) if _is_near(report, step_s)]
        others += [other for other in near if will_run(other)]
        chosen = diverse_subset(plan, others, count + 1)[1:]
        if len(chosen) == count:
            break
    return chosen


def _is_near(report: Report, step_s: float) -> bool:
    return (report.fits_probability or 0.0) >= LIKELY and report.step_time_s <= SLOWEST * step_s


def _searched(resolved: Resolved) -> Near:
    """Return the best plan of each layout, best first; empty for a long-form plan."""
    if resolved.short is None:
        return []
    found = answer(PlanRequest(resolved.short, top=CONSIDERED), resolved.setting)
    return [(proposal.plan, proposal.report) for proposal in found.proposals]


def _neighbours(resolved: Resolved) -> Near:
    """Return the legal neighbours of a plan, in its form, with their predictions, best first."""
    setting, found = resolved.setting, []
    for plan in neighbours(resolved.long):
        try:
            legal = resolve_with(plan, setting.model, setting.cluster, setting.stack, stack_binds=True)
            found.append(((legal.short if resolved.short else None) or legal.long, predicted(legal)))
        except InputError:
            continue
    return sorted(found, key=lambda near: near[1].step_time_s)
