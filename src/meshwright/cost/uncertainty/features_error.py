"""Draw errors of predicted step times: from the constants, and from each feature of a plan.

The error of a feature is log-normal and shared by all plans that have it. Its width is the one with which drawn ratios
of two plans have the interval that measured pairs of left-out runs show (rows ``feature`` of
``cost/data/error_parts.csv``). A feature that no run of a stack has, while there are runs of it, is wider and more
likely slower than faster.
"""

from zlib import crc32

import numpy as np

from meshwright.cost.uncertainty.constant_draws import Floats
from meshwright.cost.uncertainty.constants_error import log_responses
from meshwright.cost.uncertainty.error_parts import error_parts
from meshwright.cost.uncertainty.plan_features import plan_features, seen_features
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.setting import Setting

REPEATED = 16
"""So many draws of the features' errors go with each draw of the constants; quantiles need many."""
SLOWER = 0.5
"""Standard deviations by which a stack's plans with a feature that no run of it has are expected slower (an
assumption)."""


def log_errors(
    plans: PlanArrays,
    setting: Setting,
    responses: Floats | None = None,
    seen: frozenset[str] | None = None,
) -> Floats:
    """Return draws of log(measured/predicted step time) of every plan, but for what all plans share: (draws, n).

    ``responses`` are those of the constants (``log_responses``) and ``seen`` the features that the stack's runs have,
    where they are not the present ones.
    """
    total = np.tile(log_responses(plans, setting) if responses is None else responses, (REPEATED, 1))
    seen = seen_features().get(setting.stack.name, frozenset()) if seen is None else seen
    known, unknown = (error_parts()[f"feature {how}"].run for how in ("seen", "unseen"))
    for name, mask in plan_features(plans, setting).items():
        drawn = _standard_normal(name, len(total))
        if name in seen:
            total += np.outer(known * drawn, mask)
        else:
            total += np.outer(unknown * (drawn + (SLOWER if seen else 0.0)), mask)
    return total


def _standard_normal(name: str, count: int) -> Floats:
    """Return draws that are always the same for a feature, with mean 0 and standard deviation 1."""
    drawn = np.random.default_rng(crc32(name.encode())).standard_normal(count)
    return np.asarray((drawn - drawn.mean()) / drawn.std(), dtype=np.float64)
