"""Make the request for a report: from a plan file and the plans to compare with, or from the answer of a search."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.errors import InputError
from meshwright.explanation.plan_difference import legal
from meshwright.explanation.plan_recommendation import is_recommended, recommended
from meshwright.explanation.report.report_document import ReportRequest
from meshwright.plans.forms.conversion import expand
from meshwright.plans.resolve import Resolved
from meshwright.result import Report
from meshwright.verbs.load_plan import PlanSource, load, plan_name
from meshwright.verbs.plan.clusters.choose_cluster import Choice
from meshwright.verbs.plan.clusters.choose_model import ModelChoice
from meshwright.verbs.predict.training_estimate import report_with_training_estimate

if TYPE_CHECKING:
    from meshwright.cost.constants_file import Given


def file_report(
    path: PlanSource,
    against: Iterable[PlanSource] = (),
    *,
    tokens: str | int | None = None,
    assume: Iterable[str] = (),
    price: str = "on-demand",
    constants: "Given | None" = None,
    search: bool = True,
) -> ReportRequest:
    """Return the request for a plan file; options as of ``predict``. Raises InputError, and InfeasibleError where
    "recommended" is compared and nothing fits.
    """
    assumed = tuple(assume)

    def priced(load_it: Callable[[], Resolved]) -> tuple[Resolved, Report]:
        found = load_it()
        return found, report_with_training_estimate(lambda: found, tokens, assumed, price)

    own, report = priced(lambda: load(path, constants=constants))
    others = []
    for at, name in enumerate(against):
        try:
            if is_recommended(name):
                other = priced(lambda: recommended(own))
            else:
                other = priced(lambda name=name: load(name, constants=constants))  # type: ignore[misc]
        except InputError as error:
            problems = [replace(one, field=f"against.{at}.{one.field}") for one in error.problems]
            raise InputError(problems) from None
        others.append((plan_name(name, at + 1), *other))
    return ReportRequest(plan_name(path), own, report, others, search)


def answer_report(found: Choice | ModelChoice, data: Mapping[str, Any]) -> ReportRequest:
    """Return the request for the recommended plan of a search; ``data`` is the search's document."""
    choice = found.choice if isinstance(found, ModelChoice) else found
    setting, best = choice.chosen.course.setting, choice.proposals[0]
    long = best.long or expand(best.plan, setting.model.architecture)
    resolved = legal(long, setting)
    assert isinstance(resolved, Resolved), resolved
    return ReportRequest("the recommended plan", resolved, best.report, found=data)
