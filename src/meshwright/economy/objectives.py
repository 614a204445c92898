"""Objectives that rank plans and clusters. On one cluster, with all devices in use, all rank plans alike.

Each objective is a number that grows with the time of a step, the less the better; None where something that it needs
is unknown. So a lower bound of the step is one of the objective.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from meshwright.cluster.cluster import Cluster
from meshwright.economy.training_cost import TrainingCost
from meshwright.errors import InputError, Problem, nearest


@dataclass(frozen=True, slots=True)
class Objective:
    """``measure``: of a course at a step time in seconds. ``needs``: what must be known, with what would say it."""

    summary: str
    measure: Callable[[TrainingCost, float], float | None]
    needs: str = ""
    known: Callable[[Cluster], bool] = lambda cluster: True
    say: str = ""


def _useful(course: TrainingCost, step_s: float) -> float | None:
    return None if course.outages is None else course.seconds(step_s)


OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {
        "throughput": Objective(
            "tokens per second while all works",
            lambda course, step_s: course.steps * course.slowdown * step_s,
        ),
        "cost": Objective(
            "dollars for each token",
            lambda course, step_s: course.costs(step_s).usd,
            "price",
            lambda cluster: cluster.usd_per_hour is not None,
            "usd_per_device_hour=2.5",
        ),
        "energy": Objective(
            "energy for each token, at most",
            lambda course, step_s: course.costs(step_s).kwh,
            "power of a node or limit of board power",
            lambda cluster: all(
                pool.device.power_w is not None or pool.node.power_w is not None for pool in cluster.pools
            ),
            "power_w_per_device=700",
        ),
        "goodput": Objective(
            "useful tokens per second, failures included",
            _useful,
            "rate of failures",
            lambda cluster: cluster.failures_per_1000_node_days is not None,
            "failures_per_1000_node_days=4",
        ),
        "time": Objective(
            "days of the training, failures included where their rate is known",
            lambda course, step_s: course.seconds(step_s),
        ),
    }
)


MOST_TOKENS = Objective(
    "tokens of the training, the more the better",
    lambda course, step_s: -(course.terms.tokens or 0),
)
"""Ranks clusters whose trainings have as many tokens as keep the limits; it is measured after the search."""


def objective(name: str) -> Objective:
    """Return the objective called ``name``. Raise InputError with similar names."""
    if name not in OBJECTIVES:
        raise InputError(Problem("objective", name, "is no objective", nearest(name, OBJECTIVES)))
    return OBJECTIVES[name]
