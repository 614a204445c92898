"""Count the choices of plans that are not their stack's default."""

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.choices import searched_choices
from meshwright.plans.choices.gather import GATHERS, NEVER
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.plans.forms.short import default_gather
from meshwright.plans.setting import Setting


def departures(plans: PlanArrays, setting: Setting) -> NDArray[np.float64]:
    """Return how many choices of each plan are not the stack's default: (n,).

    Virtual stages count by their doublings, and a schedule once more for each of its parameters that is set.
    """
    total = np.log2(plans.virtual_stages) + gathers_unusually(plans) + _schedules(plans)
    for name, choice in searched_choices().items():
        usual = choice.usual(setting)[0]
        unusual = np.array([value != usual for value in plans.values[name]])[
            plans.columns[name].astype(np.int64)
        ]
        concerned = plans.cp > 1 if choice.later else choice.concerns(plans)
        total = total + (unusual & concerned)
    return np.asarray(total, dtype=np.float64)


def _schedules(plans: PlanArrays) -> NDArray[np.float64]:
    counts = [
        (choice.name != "1f1b")
        + len(choice.given_knobs)
        + (choice.vocabulary is not None)
        + (choice.step_validation is not None)
        for choice in plans.schedules
    ]
    return np.where(plans.pp > 1, np.array(counts, dtype=np.float64)[plans.schedule], 0.0)


def gathers_unusually(plans: PlanArrays) -> NDArray[np.bool_]:
    """Return the mask of plans that gather parameters at another time than their sharding does by default: (n,)."""
    usual = np.array([[GATHERS.index(default_gather(name, pp)) for pp in (1, 2)] for name in SHARDINGS])
    own = usual[plans.sharding, (plans.pp > 1).astype(np.int64)]
    return np.asarray((plans.gather != own) & (plans.gather != GATHERS.index(NEVER)))
