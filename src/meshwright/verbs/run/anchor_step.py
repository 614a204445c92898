"""Remark on a run whose anchor, which evaluations and exported weights use, is that of an earlier step."""

from collections.abc import Iterator

from meshwright.plans.forms.long import LongPlan
from meshwright.plans.synchronisation.periods import LearningRates, Periods
from meshwright.plans.synchronisation.plan_axes import loose_axes_of_plan
from meshwright.program.synchronisation.model_anchor import anchored_entry


def anchor_remark(plan: LongPlan, rates: LearningRates) -> Iterator[str]:
    """Yield a sentence if steps of a run with these ``rates`` are not in its anchor; fragments may differ in them."""
    number = anchored_entry(plan.synchronise, loose_axes_of_plan(plan))
    if number is None:
        return
    periods, steps = Periods(plan.synchronise[number], rates), rates.steps
    last = steps - int(periods.entry.delay)
    begun = [periods.last_begin(last, fragment) for fragment in range(periods.count)]
    if min(begun) == steps:
        return
    uses = "The anchor, which evaluations and --export use,"
    ending = f"synchronise.{number} ends no later exchange within the run."
    if max(begun) == 0:
        yield f"{uses} has the initial weights, as before step 1: {ending}"
        return
    of = (
        f"step {max(begun)}"
        if min(begun) == max(begun)
        else f"steps {min(begun)} to {max(begun)} by fragment"
    )
    yield f"{uses} is that of {of}, not of step {steps}: {ending}"
