"""Add to a Report what a plan without entries of ``synchronise`` exchanges between replicas in every step."""

from dataclasses import replace

from meshwright.cost.plan_report import group_of
from meshwright.cost.synchronisation.exchange_rows import IN_STEPS, ExchangeSummary
from meshwright.cost.synchronisation.exchanges_in_steps import StepExchanges, program_exchanges, step_rows
from meshwright.cost.synchronisation.group_exchanges import group_exchanges
from meshwright.plans.layers.plan_of_layout import micro_batches_of
from meshwright.plans.layers.recompute_by_layer import layer_recomputes
from meshwright.plans.resolve import Resolved
from meshwright.result import Report
from meshwright.verbs.predict.predict_plan import closed_form_plan

MOST_PASSES = 2**14
"""Passes of a step up to which a plan without closed form is lowered only to list its exchanges."""


def with_sharding_exchanges(report: Report, resolved: Resolved) -> Report:
    """Return the report with rows of gradients and gathered parameters; as it is if it has rows."""
    if report.synchronise is not None:
        return report
    exchanges = _closed_form(resolved)
    if exchanges is None:
        if (passes := _passes(resolved)) > MOST_PASSES:
            origin = f"null: {passes:,} passes in a step are not listed for it"
            return replace(report, origin={**report.origin, "synchronise": origin})
        exchanges = _lowered(resolved)
    found = ExchangeSummary(tuple(step_rows(exchanges, report.breakdown_s)), 1, "step", IN_STEPS)
    return replace(
        report,
        origin={**report.origin, "synchronise": found.origin},
        **found.of_report(report.step_time_s),
    )


def _passes(resolved: Resolved) -> int:
    plan, workload = resolved.long, resolved.setting.workload
    return 2 * micro_batches_of(plan, workload.computed_sequences) * len(plan.pipeline.placement)


def _closed_form(resolved: Resolved) -> StepExchanges | None:
    short, plan, setting = closed_form_plan(resolved), resolved.long, resolved.setting
    if short is None:
        return None
    recomputes = layer_recomputes(plan, setting.model.architecture.layers)
    return group_exchanges(group_of(short, setting, plan.pipeline.stages, recomputes))


def _lowered(resolved: Resolved) -> StepExchanges:
    from meshwright.cost.operators.price_plans import program_prices
    from meshwright.simulate.plan_estimate import lowered

    plan = resolved.long
    program = lowered(plan.model_copy(update={"offload": None}) if plan.in_chunks else plan, resolved.setting)
    return program_exchanges(program, program_prices(program, resolved.setting))
