"""Answer questions with the verbs' JSON documents, an HTTP status and the verb's exit code."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from meshwright import api
from meshwright.cli.terminal.output import error_data, wrong_input
from meshwright.errors import InputError, MeshwrightError, Problem
from meshwright.explanation.cluster_resources import rates
from meshwright.explanation.report.report_document import report_document
from meshwright.explanation.report.report_requests import file_report
from meshwright.frameworks.import_formats import is_plan
from meshwright.plans.resolve import Resolved
from meshwright.present.page.report_page import report_page
from meshwright.verbs.check import check_text
from meshwright.verbs.import_ import ImportRequest
from meshwright.verbs.load_plan import load
from meshwright.verbs.predict.training_estimate import report_with_training_estimate
from meshwright.web import questions as asked

Progress = Callable[[str, float], None]
OK, WRONG_INPUT, FAILED = 200, 422, 500
PASTED = "pasted/file"
"""Name of a text: there is no such file, and none beside it."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer: HTTP status, exit code of the verb, document; ``page`` is the HTML of a report."""

    status: int
    exit_code: int
    document: dict[str, Any]
    page: str | None = None


def answer(verb: str, question: asked.Question, progress: Progress) -> Response:
    """Answer a question. What is wrong with it, and that nothing fits, are answers too."""
    try:
        return ANSWERS[verb](question, progress)
    except InputError as error:
        return Response(WRONG_INPUT, error.exit_code, wrong_input(error.problems))
    except MeshwrightError as error:
        return Response(OK, error.exit_code, error_data(error))
    except PermissionError:
        rule = "names a file or a hub id, which are not read here"
        problem = Problem("input", None, rule, "names of the catalogue, or texts")
        return Response(WRONG_INPUT, 2, wrong_input([problem]))
    except RecursionError:
        problem = Problem("input", None, "is nested too deeply", "a text of fewer levels")
        return Response(WRONG_INPUT, 2, wrong_input([problem]))


def _plan(question: asked.PlanQuestion, progress: Progress) -> Response:
    given = question.model_dump()
    units = {"budget": "budget_usd", "deadline": "deadline_days", "power": "power_kw"}
    options = {units.get(name, name): value for name, value in given.items()}
    on = options.pop("on")
    clusters = [on] if on.startswith("{") else [part.strip() for part in on.split(",") if part.strip()]
    found = api.plan(options.pop("model"), on=clusters, progress=progress, **options)
    return Response(OK, 0, found.to_json())


def _predict(question: asked.PredictQuestion, progress: Progress) -> Response:
    def scaled() -> Resolved:
        return _with_rates(load(question.plan, question.set), question.rates)

    report = report_with_training_estimate(scaled, question.tokens, question.assume, question.price)
    return Response(OK, 0 if report.fits else 1, report.to_json())


def _with_rates(resolved: Resolved, factors: dict[str, float]) -> Resolved:
    """Return the plan on a cluster with some rates multiplied. Raise InputError for rates that it does not have."""
    for name, factor in factors.items():
        known = {one.name: one for one in rates(resolved.setting)}
        if name not in known:
            rule = f"is no rate of {resolved.setting.cluster.name}"
            raise InputError(Problem(f"rates.{name}", factor, rule, ", ".join(known)))
        if factor > known[name].most:
            rule = f"is above {known[name].most:g}: no faster links were measured"
            raise InputError(Problem(f"rates.{name}", factor, rule, f"{name}: {known[name].most:g}"))
        resolved = replace(resolved, setting=known[name].scaled(factor))
    return resolved


def _explain(question: asked.ExplainQuestion, progress: Progress) -> Response:
    found = api.explain(question.plan, against=question.against, progress=progress)
    return Response(OK, 0 if found.fits else 1, found.to_json())


def _check(question: asked.CheckQuestion, progress: Progress) -> Response:
    text = question.text
    if is_plan(text):
        text = json.dumps(asked.plan_data("text", text))
    names = question.model_dump(exclude={"text"})
    found = check_text(text, PASTED, ImportRequest(**names, variables=()))
    return Response(OK, 0 if found.ok else 1, found.to_json())


def _export(question: asked.ExportQuestion, progress: Progress) -> Response:
    found = api.export(question.plan, to=question.to, launcher=question.launcher)
    return Response(OK, 0, found)


def _report(question: asked.ReportQuestion, progress: Progress) -> Response:
    request = file_report(
        question.plan,
        question.against,
        tokens=question.tokens,
        assume=question.assume,
        price=question.price,
        search=question.search,
    )
    document = report_document(request, progress)
    return Response(OK, 0 if request.report.fits else 1, document, report_page(document))


ANSWERS: dict[str, Callable[[Any, Progress], Response]] = {
    "plan": _plan,
    "predict": _predict,
    "explain": _explain,
    "check": _check,
    "export": _export,
    "report": _report,
}
