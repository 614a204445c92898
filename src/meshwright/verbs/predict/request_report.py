"""Predict a serving plan, with the prices and power that are assumed."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from meshwright.cluster.catalog_prices import ON_DEMAND
from meshwright.cost.constants_file import Given
from meshwright.cost.serving.level_calibration import given_levels
from meshwright.cost.serving.levels import LevelTable
from meshwright.cost.serving.serving_errors import serving_problems
from meshwright.cost.serving.serving_report import serving_report
from meshwright.economy.tokens_and_assumptions import parse_terms
from meshwright.errors import InputError
from meshwright.plans.serving.resolve_serving import ResolvedServing
from meshwright.result import Report, ServingReport
from meshwright.verbs.load_plan import (
    PlanSource,
    load,
    load_serving,
    refuse_serving_options,
    refuse_training_options,
)
from meshwright.verbs.predict.run_rates import with_run_rates
from meshwright.verbs.predict.training_estimate import report_with_training_estimate


def predicted_any(
    path: PlanSource,
    settings: Iterable[str],
    constants: Given | None,
    terms: tuple[str | int | None, Iterable[str], str],
    calibration: str | Path | None = None,
    run: Mapping[str, object] | None = None,
) -> Report:
    """Return the Report of a plan file of any kind; ``terms`` are tokens, assumptions and the term of prices.

    ``calibration``: a file of levels, for plans that serve. ``run``: options of a run that say its learning rates.
    """
    run = run or {}
    served = load_serving(path, settings, constants)
    if served is not None:
        refuse_training_options({name: value for name, value in run.items() if value is not None})
        return predicted_serving(served.resolved, *terms, levels=given_levels(calibration))
    refuse_serving_options({"calibration": calibration})
    return report_with_training_estimate(lambda: with_run_rates(load(path, settings, constants), run), *terms)


def predicted_serving(
    resolved: ResolvedServing,
    tokens: str | int | None = None,
    assume: Iterable[str] = (),
    price: str = ON_DEMAND,
    *,
    levels: LevelTable | None = None,
) -> ServingReport:
    """Return the Report of a plan, with what is doubtful about it as remarks.

    Raises UnsupportedError for ``tokens`` of a training and for what is not predicted yet, InputError for other wrong
    terms.
    """
    refuse_training_options({"tokens": tokens})
    terms = parse_terms(None, assume, price)
    problems = [*terms.unknown_families([resolved.cluster]), *terms.churn_problems()]
    if problems:
        raise InputError(problems)
    priced = replace(resolved, cluster=terms.on(resolved.cluster))
    report = serving_report(priced, levels)
    doubts = (*map(str, serving_problems(report, priced)), *terms.remarks([priced.cluster]))
    return replace(report, remarks=(*report.remarks, *doubts))
