"""Add to a Report what a plan without entries of ``synchronise`` exchanges between replicas in every step."""

from dataclasses import replace

from meshwright.cost.operators.price_plans import program_prices
from meshwright.cost.synchronisation.exchange_rows import ExchangeSummary
from meshwright.cost.synchronisation.exchanges_in_steps import step_rows
from meshwright.plans.layers.plan_of_layout import sequences_together
from meshwright.plans.resolve import Resolved
from meshwright.result import Report
from meshwright.simulate.plan_estimate import IN_STEPS, lowered

MOST_PASSES = 2**14
"""Passes of a step up to which it is lowered only to list its exchanges."""


def with_sharding_exchanges(report: Report, resolved: Resolved) -> Report:
    """Return the report with rows of gradients and gathered parameters; as it is if it has rows."""
    plan, setting = resolved.long, resolved.setting
    if report.synchronise is not None or plan.in_chunks:
        return report
    passes = (
        2 * setting.workload.computed_sequences // sequences_together(plan) * len(plan.pipeline.placement)
    )
    if passes > MOST_PASSES:
        origin = f"null: {passes:,} passes in a step are not listed for it"
        return replace(report, origin={**report.origin, "synchronise": origin})
    program = lowered(plan, setting)
    rows = tuple(step_rows(program, program_prices(program, setting), report.breakdown_s))
    found = ExchangeSummary(rows, 1, "step", IN_STEPS)
    return replace(
        report,
        origin={**report.origin, "synchronise": found.origin},
        **found.of_report(report.step_time_s),
    )
