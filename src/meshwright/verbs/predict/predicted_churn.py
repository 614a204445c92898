"""Add to a Report the mean steps of a pipeline whose peers leave and join, where churn is assumed."""

from dataclasses import replace

from meshwright.economy.assumptions import Assumptions
from meshwright.plans.resolve import Resolved
from meshwright.result import Report
from meshwright.verbs.predict.predict_plan import check_playable


def with_churn(report: Report, resolved: Resolved, assumed: Assumptions, slowdown: float = 1.0) -> Report:
    """Return the report with a row for each routing. Raise InputError for plans that cannot be routed.

    ``slowdown``: the factor on predicted times where the speed is assumed.
    """
    if assumed.churn_per_hour is None:
        return report
    from meshwright.simulate.churn.plan_under_churn import AssumedChurn, churn_rows

    check_playable(resolved)
    churn = AssumedChurn(assumed.churn_per_hour, assumed.restart_s, assumed.skip_share, slowdown)
    rows, origin = churn_rows(resolved.long, resolved.setting, churn)
    return replace(report, churn=rows, origin=report.origin | {"churn": origin})
