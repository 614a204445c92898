"""Which plans to probe beside a plan: those that differ most from it among near ones that will run.

Near ones are likely to fit and predicted to be at most a quarter slower. Where the plan has a short form these are the
best of a search, which has one plan of each layout, and where those are too few also the plan's neighbours
(``search/neighbours.py``); a plan in full has neighbours alone, which keep its stages and rules of layers.
"""

from collections.abc import Callable, Iterable

from meshwright.cost.intervals import LIKELY
from meshwright.errors import InputError
from meshwright.plan.files import Plan
from meshwright.plan.resolve import Resolved, resolve_with
from meshwright.result import Report
from meshwright.search.neighbours import neighbours
from meshwright.search.spread import spread
from meshwright.verbs.planning import Question, answer
from meshwright.verbs.predicting import predicted

CONSIDERED = 64
SLOWEST = 1.25

Near = Iterable[tuple[Plan, Report]]


def plans_beside(
    resolved: Resolved, step_s: float, count: int, will_run: Callable[[Plan], bool]
) -> list[Plan]:
    """Up to ``count`` plans beside one of ``step_s`` seconds, best spread first; ``will_run`` is asked of each."""
    plan, others, chosen = resolved.short or resolved.long, [], []
    for found in (_searched, _neighbours):
        near = [other for other, report in found(resolved) if _is_near(report, step_s)]
        others += [other for other in near if will_run(other)]
        chosen = spread(plan, others, count + 1)[1:]
        if len(chosen) == count:
            break
    return chosen


def _is_near(report: Report, step_s: float) -> bool:
    return (report.fits_probability or 0.0) >= LIKELY and report.step_time_s <= SLOWEST * step_s


def _searched(resolved: Resolved) -> Near:
    """The best plan of each layout, best first; none for a plan in full."""
    if resolved.short is None:
        return []
    found = answer(Question(resolved.short, top=CONSIDERED), resolved.setting)
    return [(proposal.plan, proposal.report) for proposal in found.proposals]


def _neighbours(resolved: Resolved) -> Near:
    """The legal neighbours of a plan, in its form, with their predictions, best first."""
    setting, found = resolved.setting, []
    for plan in neighbours(resolved.long):
        try:
            legal = resolve_with(plan, setting.model, setting.cluster, setting.stack)
            found.append(((legal.short if resolved.short else None) or legal.long, predicted(legal)))
        except InputError:
            continue
    return sorted(found, key=lambda near: near[1].step_time_s)
