"""Draws of the error of predicted step times: from the constants, and from the residual error of left-out runs."""

import numpy as np

from meshwright.cost.uncertainty.constant_draws import Floats, constant_draws
from meshwright.cost.uncertainty.constants_error import log_responses
from meshwright.cost.uncertainty.features_error import REPEATED
from meshwright.cost.uncertainty.interval import QUANTILE
from meshwright.cost.uncertainty.step_error import step_error
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.setting import Setting


def draws_of_step_errors() -> int:
    """Return the number of draws."""
    return REPEATED * len(constant_draws().log_factors)


def log_step_errors(plans: PlanArrays, setting: Setting, normal: Floats) -> Floats:
    """Return draws of log(measured/predicted step time) of every plan: (draws, n).

    ``normal`` are draws of a standard normal distribution, which all plans share.
    """
    parts = step_error(setting).parts
    spread = parts.sigma * parts.quantile / QUANTILE
    return np.asarray(np.tile(log_responses(plans, setting), (REPEATED, 1)) + spread * normal[:, None])
