"""80 % intervals of predicted step times, from runs that the fit did not see.

``data/intervals.csv`` holds, for dense models and for models with experts, the 10 % and 90 % quantiles of
measured/predicted over published runs, each source predicted by constants that were fitted without it. Where the
device's kernels were never measured or the stack is unknown there is no such run: the interval is widened by
``UNKNOWN`` in the logarithm for each, an assumption.
"""

import csv
from functools import cache
from importlib.resources import files

from meshwright.cost.constants import kernels
from meshwright.plan.setting import Setting

UNKNOWN = 1.5
UNKNOWN_STACK = "generic"


def step_interval(setting: Setting) -> tuple[float, float]:
    """Factors on a predicted step time: the low and the high end of its 80 % interval."""
    low, high = _measured()["dense" if setting.model.architecture.moe is None else "experts"]
    doubts = (not kernels(setting.cluster.pool.device.id).measured) + (setting.stack.name == UNKNOWN_STACK)
    return low ** (UNKNOWN**doubts), high ** (UNKNOWN**doubts)


def interval_origin(setting: Setting) -> str:
    """Where the interval comes from, in words."""
    models = "dense models" if setting.model.architecture.moe is None else "models with experts"
    return f"80 % interval: published runs of {models}, each source left out of the fit (docs/accuracy.md)"


@cache
def _measured() -> dict[str, tuple[float, float]]:
    with (files("meshwright.cost") / "data" / "intervals.csv").open(encoding="utf-8") as lines:
        return {row["models"]: (float(row["low"]), float(row["high"])) for row in csv.DictReader(lines)}
