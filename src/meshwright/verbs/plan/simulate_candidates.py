"""Select the plans that need a simulation (no closed form, or offload) and that bounds leave open.

Copies to the hosts only ever make a step longer. So where a plan fits without them, and was priced, those with them are
no better; and where the bounds of time are above the best plans, nothing of it is written out.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.closed_form.evaluate_plans import fitting, step_seconds
from meshwright.cost.lower_bounds.coarse_time_and_memory import VariantBounds
from meshwright.cost.lower_bounds.state_memory import may_fit
from meshwright.cost.lower_bounds.tight_step_time import TightBounds, tight_bounds
from meshwright.cost.pipeline_time.gpipe_1f1b_interleaved import have_forms
from meshwright.plans.arrays.distinct_rows import distinct
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.arrays.short_plans import COLUMNS
from meshwright.plans.forms.host_offload import Offload
from meshwright.plans.setting import Setting
from meshwright.search.algorithms.exhaustive import RankedPlans
from meshwright.search.algorithms.expensive_best_first import enough_step_s
from meshwright.search.space.plan_space import Space


def candidates_to_simulate(
    space: Space, found: RankedPlans, top: int, setting: Setting, usable_bytes: float
) -> tuple[RankedPlans, PlanArrays]:
    """Plans of a space that may be among the best ``top``; what was found, with those counted that can not."""
    worth, floors = enough_step_s(found, top), VariantBounds(space.base, setting, usable_bytes=usable_bytes)
    legal, overfull, slower = space.legal.copy(), 0, 0
    for code, variant in enumerate(space.variants):
        if not variant.values(space.base)["offload"].rule.share:
            continue
        bounds = floors.of(space.base.with_columns(variant.of(space.base)))
        over = legal[code] & (bounds.total_bytes > usable_bytes)
        slow = legal[code] & ~over & (bounds.step_s >= worth)
        overfull, slower = overfull + int(over.sum()), slower + int(slow.sum())
        legal[code] &= ~(over | slow)
    plans = replace(space, legal=legal).plans
    plans = plans.take(may_fit(plans, setting))
    needless = plans.leaves_devices & _fits_without(plans, found)
    slower, plans = slower + int(needless.sum()), plans.take(~needless)
    too_large = np.zeros(len(plans), dtype=np.bool_)
    copying = np.flatnonzero(plans.leaves_devices)
    too_large[copying] = ~fitting(plans.take(copying), setting)
    overfull += int(too_large.sum())
    counted = replace(
        found,
        overfull=found.overfull + overfull,
        too_large=found.too_large + overfull,
        slower=found.slower + slower,
    )
    return counted, plans.take(~too_large)


def simulated_lower_bound(plans: PlanArrays, setting: Setting, enough_s: float) -> TightBounds:
    """Lower bounds of plans; where copies are all that must be played, no less than the step without them."""
    found = tight_bounds(plans, setting, enough_s)
    copying = np.flatnonzero(plans.leaves_devices & have_forms(plans))
    alone = plans.take(copying)
    alone = alone.with_choice("offload", Offload())
    seconds = found.step_s.copy()
    seconds[copying] = np.maximum(seconds[copying], step_seconds(alone, setting))
    return replace(found, step_s=seconds)


def _fits_without(plans: PlanArrays, found: RankedPlans) -> NDArray[np.bool_]:
    """Plans that were found to fit with nothing on the hosts."""
    fitting = found.plans.take(found.fits)
    both = (
        np.concatenate([getattr(fitting, name), getattr(plans, name)])
        for name in COLUMNS
        if name != "offload"
    )
    same = distinct(list(both)).inverse
    return np.isin(same[len(fitting) :], same[: len(fitting)])
