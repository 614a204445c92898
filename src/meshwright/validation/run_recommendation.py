"""Order measured runs by the recommendation of their plans."""

from collections.abc import Sequence

import numpy as np

from meshwright.cost.uncertainty.features_error import log_errors
from meshwright.cost.uncertainty.regret import MOST_COMPARED, axes_above_one, recommended_order, regrets
from meshwright.plans.choices.defaults import departures
from meshwright.validation.predict_runs import Floats, Ints, Predictions
from meshwright.validation.read_run_table import Run
from meshwright.validation.run_plan import plan_arrays, run_plan
from meshwright.validation.run_setting import setting_of


def recommended_rows(runs: Sequence[Run], predicted: Predictions, rows: Ints) -> Ints:
    """Return the rows of predicted runs, the recommended one first.

    Of many only the fastest are compared, and the others follow. That a run may not fit is no matter: it has run.
    """
    by_time = rows[np.argsort(predicted.step_s[rows], kind="stable")]
    compared, others = by_time[:MOST_COMPARED], by_time[MOST_COMPARED:]
    same: dict[int, list[int]] = {}
    for place, row in enumerate(compared.tolist()):
        same.setdefault(id(runs[row].given), []).append(place)
    axes, unusual = np.zeros((2, len(compared)))
    errors: dict[int, Floats] = {}
    for places in same.values():
        setting = setting_of(runs[compared[places[0]]].given)
        plans = [run_plan(runs[compared[place]].chosen, setting.cluster.devices) for place in places]
        for members, arrays in plan_arrays(plans, setting):
            at = np.array(places)[members]
            axes[at], unusual[at] = axes_above_one(arrays), departures(arrays, setting)
            drawn = log_errors(arrays, setting)
            errors |= {int(place): drawn[:, member] for member, place in enumerate(at)}
    step_s = predicted.step_s[compared]
    regret = regrets(step_s, np.stack([errors[place] for place in range(len(compared))], 1))
    order = recommended_order(regret, axes, unusual, predicted.memory_bytes[compared], step_s)
    return np.concatenate([compared[order], others])
