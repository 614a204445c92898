"""Compute the step times of plans under many changed constants at once.

Rows of the array are plans in cases: plan i under change j. Where a schedule has no closed form, or where the changed
constant is a tier's, changes are priced one after the other.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.closed_form.evaluate_plans import Floats, step_seconds
from meshwright.cost.constant_values import is_of_tier, parts_of_name, value_in, with_values
from meshwright.cost.constants_by_row import ConstantCases, changed_one_by_one
from meshwright.cost.pipeline_time.gpipe_1f1b_interleaved import have_forms
from meshwright.plans.arrays.distinct_rows import distinct
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.setting import Setting

AT_ONCE = 20_000
"""Rows that are priced at once; more would only take memory."""

GROUPED_BY = (
    "recompute",
    "order",
    "sequence_parallel",
    "pp",
    "virtual_stages",
    "schedule",
    "sharding",
    "gather",
)
"""Columns whose values plans of one group share (``evaluate_plans.py``), those that split most groups."""

Change = tuple[str, float]
"""The name of a constant and its other value."""


def changed_step_seconds(plans: PlanArrays, setting: Setting, changes: Sequence[Change]) -> Floats:
    """Return the step time of every plan under each change, in seconds: (changes, n)."""
    seconds = np.zeros((len(changes), len(plans)))
    played = ~have_forms(plans)
    at_once = [at for at, (name, _) in enumerate(changes) if not is_of_tier(name)]
    for rows, together in ((np.flatnonzero(~played), at_once), (np.flatnonzero(played), [])):
        if not len(rows):
            continue
        for at, (name, value) in enumerate(changes):
            if at not in together:
                seconds[at, rows] = step_seconds(plans.take(rows), with_values(setting, {name: value}))
        rows = _priced_together(plans, rows)
        each = max(1, AT_ONCE // max(1, len(together)))
        for first in range(0, len(rows) if together else 0, each):
            part = rows[first : first + each]
            found = _at_once(plans.take(part), setting, [changes[at] for at in together])
            seconds[np.ix_(np.array(together), part)] = found
    return seconds


def _priced_together(plans: PlanArrays, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows with those next to each other that are priced in one group."""
    kinds = distinct([getattr(plans, name)[rows] for name in GROUPED_BY]).inverse
    return rows[np.argsort(kinds, kind="stable")]


def _at_once(plans: PlanArrays, setting: Setting, changes: Sequence[Change]) -> Floats:
    """Return the step times under changes of constants that may have several names, of any owner and of their own."""
    same = {parts_of_name(name)[1:]: name for name, _ in changes}
    moved = [(same[parts_of_name(name)[1:]], value) for name, value in changes]
    base = {name: value_in(setting, name) for name, _ in moved}
    cases = ConstantCases(changed_one_by_one(base, moved), np.repeat(np.arange(len(changes)), len(plans)))
    rows = np.tile(np.arange(len(plans)), len(changes))
    return step_seconds(plans.take(rows), setting, cases).reshape(len(changes), len(plans))
