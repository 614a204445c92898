"""The ranking of clusters on offer: the costs of each one's best plan, or why its search stopped."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any, Literal

from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_offers import Offer
from meshwright.economy.objectives import Objective
from meshwright.economy.training_cost import Costs, TrainingCost
from meshwright.plans.forms.short import ShortPlan
from meshwright.units import DAY_S, format_seconds

LONGEST, CLOSE = 64.0, 1 + 1e-6
"""How many times the bound of a step is looked at for where a cluster is beaten, and how closely."""
State = Literal["searched", "beaten", "nothing fits", "nothing is legal"]
Point = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class RankedCluster:
    """``step_s`` is that of the best plan where the cluster was searched, a lower bound where it is beaten."""

    offer: Offer
    course: TrainingCost
    state: State
    step_s: float | None = None
    plan: ShortPlan | None = None
    why: str = ""

    @property
    def costs(self) -> Costs:
        """Return the costs of the training, or of a step where its length is unknown."""
        assert self.step_s is not None, "nothing fits here"
        return self.course.costs(self.step_s)

    @property
    def point(self) -> Point:
        """Time, money and energy, the less the better."""
        return point(self.course, self.step_s or 0.0)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready data; numbers of what is beaten are lower bounds."""
        step_s = self.step_s
        seconds, usd, kwh = (None, None, None) if step_s is None else self.point
        outages = self.course.outages
        price = self.course.setting.cluster.pool.usd_per_device_hour
        return {
            "cluster": self.offer.on,
            "devices": self.offer.cluster.devices,
            "usd_per_device_hour": None if price is None else price.value,
            "state": self.state,
            "why": self.why,
            "step_time_s": step_s,
            "goodput": None if outages is None or step_s is None else outages.share(step_s),
            "seconds": seconds,
            "days": None if seconds is None else seconds / DAY_S,
            "usd": usd,
            "kwh": kwh,
            "plan": None if self.plan is None else self.plan.to_data(),
        }


def point(course: TrainingCost, step_s: float) -> Point:
    """Seconds, dollars and kWh of a course at a step time."""
    costs = course.costs(step_s)
    return (course.seconds(step_s), costs.usd, costs.kwh)


def dominating_cluster(
    course: TrainingCost, least_s: float, found: Sequence[RankedCluster], aim: Objective
) -> RankedCluster | None:
    """One that is no worse in time, money, energy and the objective and better in one, if steps take ``least_s``.

    All four grow with the step, so a cluster whose best plan takes longer is beaten by it too.
    """
    here = (*point(course, least_s), aim.measure(course, least_s))
    for other in found:
        assert other.step_s is not None, "only what was searched beats something"
        if dominates((*other.point, aim.measure(other.course, other.step_s)), here):
            return other
    return None


def dominated_from_step_s(
    course: TrainingCost, least_s: float, found: Sequence[RankedCluster], aim: Objective
) -> float:
    """From how many seconds of a step on a cluster is beaten, a millionth above; infinite where it hardly is."""
    if dominating_cluster(course, least_s, found, aim) is not None:
        return least_s
    low, high = least_s, least_s * LONGEST
    if dominating_cluster(course, high, found, aim) is None:
        return inf
    while high > low * CLOSE:
        middle = sqrt(low * high)
        if dominating_cluster(course, middle, found, aim) is None:
            low = middle
        else:
            high = middle
    return high


def dominated_cluster(offer: Offer, course: TrainingCost, least_s: float, by: RankedCluster) -> RankedCluster:
    """Return a cluster that another one dominates, with the reason; a step takes at least ``least_s`` here."""
    why = (
        f"{by.offer.on} is no worse in time, money, energy and the objective: no step here takes less than "
        f"{format_seconds(least_s)}"
    )
    return RankedCluster(offer, course, "beaten", least_s, why=why)


def pareto_front(standings: Sequence[RankedCluster]) -> list[RankedCluster]:
    """Those searched that none beats in time, money and energy, the quickest first. One without an end is no answer."""
    ended = [s for s in standings if s.state == "searched" and s.point[0] is not None]
    best = [ended[i] for i in non_dominated([standing.point for standing in ended])]
    return sorted(best, key=lambda standing: standing.point[0] or 0.0)


def ranked(standings: Sequence[RankedCluster], aim: Objective, limits: Limits) -> list[RankedCluster]:
    """Those searched that keep to the limits, the best by the objective first; what it can not measure is left out."""
    kept = [s for s in standings if s.state == "searched" and limits.met(s.costs)]
    measured = [(aim.measure(s.course, s.step_s or 0.0), s) for s in kept]
    known = [(value, standing) for value, standing in measured if value is not None]
    return [standing for _, standing in sorted(known, key=lambda pair: pair[0])]


def dominates(a: Point, b: Point) -> bool:
    """Return true if ``a`` is nowhere worse than ``b`` and better somewhere; what one alone lacks: incomparable."""
    better = False
    for left, right in zip(a, b, strict=True):
        if left is None and right is None:
            continue
        if left is None or right is None or left > right:
            return False
        better = better or left < right
    return better


def non_dominated(points: Sequence[Point]) -> list[int]:
    """Return the indices of points that no other dominates, in their order; equal points stay together."""
    return [i for i, point in enumerate(points) if not any(dominates(other, point) for other in points)]
