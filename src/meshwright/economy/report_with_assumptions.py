"""Reports of steps whose speed is assumed (``--assume mfu=0.38`` or ``efficiency=0.8``): scaled, and without spread."""

from dataclasses import replace

from meshwright.economy.training_cost import TrainingCost
from meshwright.errors import InputError, Problem
from meshwright.result import Report


def slowdown_to(report: Report, mfu: float) -> float:
    """Return the factor on the step time that brings a plan to an MFU. Raise InputError where it has none."""
    if not report.mfu:
        rule = "the plan has no MFU: the peak of its devices at this precision is not known"
        raise InputError(Problem("assume.mfu", mfu, rule, "efficiency=0.8"))
    return report.mfu / mfu


def at_assumed_speed(report: Report, course: TrainingCost) -> Report:
    """Return the Report at the speed that its terms assume; as it is where they assume none."""
    assumed, slow = course.terms.assumed, course.slowdown
    if not assumed.assumes_speed:
        return report
    step_s = slow * report.step_time_s
    name = "efficiency" if assumed.mfu is None else "mfu"
    origin = f"assumed: {name} = {getattr(assumed, name):g}, without spread"
    return replace(
        report,
        step_time_s=step_s,
        step_time_low_s=step_s,
        step_time_high_s=step_s,
        interval=None,
        tokens_per_s=report.tokens_per_s / slow,
        tokens_per_s_per_device=report.tokens_per_s_per_device / slow,
        mfu=_times(report.mfu, 1 / slow),
        mfu_causal=_times(report.mfu_causal, 1 / slow),
        hfu=_times(report.hfu, 1 / slow),
        usd_per_step=_times(report.usd_per_step, slow),
        joules_per_step=_times(report.joules_per_step, slow),
        breakdown_s={part: slow * seconds for part, seconds in report.breakdown_s.items()},
        origin=report.origin | {"step_time_s": f"{report.origin.get('step_time_s', 'predicted')}; {origin}"},
    )


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
