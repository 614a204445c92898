"""The ranking of clusters on offer: the costs of each one's recommended plan, or why its search stopped."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Literal

from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_offers import Offer
from meshwright.economy.objectives import Objective
from meshwright.economy.training_cost import Costs, TrainingCost
from meshwright.economy.training_draws import TrainingDraws
from meshwright.plans.forms.short import ShortPlan
from meshwright.result import Report
from meshwright.units import format_seconds

LONGEST, CLOSE = 64.0, 1 + 1e-6
"""How many times the bound of a step is looked at for where a cluster is beaten, and how closely."""
State = Literal["searched", "beaten", "nothing fits", "nothing is legal"]
Point = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class RankedCluster:
    """``step_s`` is that of the recommended plan where the cluster was searched, a lower bound where it is beaten.

    ``report`` and ``draws`` are those of the plan; None where the cluster was not searched.
    """

    offer: Offer
    course: TrainingCost
    state: State
    step_s: float | None = None
    plan: ShortPlan | None = None
    why: str = ""
    report: Report | None = None
    draws: TrainingDraws | None = None

    @property
    def family(self) -> str:
        """The device's id."""
        return self.offer.cluster.pools[0].device.id

    @property
    def costs(self) -> Costs:
        """Return the costs of the training, or of a step where its length is unknown."""
        assert self.step_s is not None, "nothing fits here"
        return self.course.costs(self.step_s)

    @property
    def point(self) -> Point:
        """Time, money and energy, the less the better."""
        return point(self.course, self.step_s or 0.0)

    def costs_held(self, limits: Limits) -> Costs:
        """Return what is held against the limits: predicted costs, or each cost that is not passed that probably."""
        return self.costs if limits.sure is None or self.draws is None else self.draws.costs_at(limits.sure)

    def least_budget(self, limits: Limits) -> float | None:
        """Return the least dollars with which the other limits hold here; None where they do not."""
        if limits.sure is not None:
            return None if self.draws is None else self.draws.least_budget(limits)
        others = replace(limits, budget_usd=None)
        return self.costs.usd if others.met(self.costs) else None

    def least_deadline(self, limits: Limits) -> float | None:
        """Return the fewest days with which the other limits hold here; None where they do not."""
        if limits.sure is not None:
            return None if self.draws is None else self.draws.least_deadline(limits)
        others = replace(limits, deadline_days=None)
        return self.costs.days if others.met(self.costs) else None

    def sure(self, limits: Limits) -> float | None:
        """Return the probability that all limits hold and the plan fits; None where it was not searched."""
        return None if self.draws is None else self.draws.sure(limits)

    def holds(self, limits: Limits) -> bool:
        """Return true if its plan keeps the limits: its predicted values, or as surely as they ask."""
        if self.state != "searched":
            return False
        if limits.sure is None:
            return limits.met(self.costs)
        return self.draws is not None and self.draws.sure(limits) >= limits.sure


def _comparable(course: TrainingCost, step_s: float, aim: Objective, limits: Limits) -> Point:
    """Return all that the choice depends on, the less the better: with a limit of power, that too."""
    power = () if limits.power_kw is None else (course.power_kw,)
    return (*point(course, step_s), aim.measure(course, step_s), *power)


def point(course: TrainingCost, step_s: float) -> Point:
    """Seconds, dollars and kWh of a course at a step time."""
    costs = course.costs(step_s)
    return (course.seconds(step_s), costs.usd, costs.kwh)


def dominating_cluster(
    course: TrainingCost, least_s: float, found: Sequence[RankedCluster], aim: Objective, limits: Limits
) -> RankedCluster | None:
    """Return one that is no worse in all that matters and better in one, if steps take ``least_s``.

    That are time, money, energy, the objective and, where it is limited, power. The first four grow with the step, so a
    cluster whose plan takes longer is beaten too. Where limits must hold with a probability, only one with which they
    do beats others.
    """
    here = _comparable(course, least_s, aim, limits)
    for other in found:
        assert other.step_s is not None, "only what was searched beats something"
        if limits.sure is not None and not other.holds(limits):
            continue
        if dominates(_comparable(other.course, other.step_s, aim, limits), here):
            return other
    return None


def dominated_from_step_s(
    course: TrainingCost, least_s: float, found: Sequence[RankedCluster], aim: Objective, limits: Limits
) -> float:
    """From how many seconds of a step on a cluster is beaten, a millionth above; infinite where it hardly is."""
    if dominating_cluster(course, least_s, found, aim, limits) is not None:
        return least_s
    low, high = least_s, least_s * LONGEST
    if dominating_cluster(course, high, found, aim, limits) is None:
        return inf
    while high > low * CLOSE:
        middle = sqrt(low * high)
        if dominating_cluster(course, middle, found, aim, limits) is None:
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
    measured = [(aim.measure(s.course, s.step_s or 0.0), s) for s in standings if s.holds(limits)]
    known = [(value, standing) for value, standing in measured if value is not None]
    return [standing for _, standing in sorted(known, key=lambda pair: pair[0])]


def best_of_families(
    standings: Sequence[RankedCluster], aim: Objective, limits: Limits
) -> Iterator[RankedCluster]:
    """Yield the best cluster of each device family, in the families' order; the nearest where none keeps the limits.

    A family on which nothing was found is there with its last cluster.
    """
    for family in dict.fromkeys(standing.family for standing in standings):
        own = [standing for standing in standings if standing.family == family]
        best, searched = ranked(own, aim, limits), [one for one in own if one.state == "searched"]
        if best or not searched:
            yield (best or own[::-1])[0]
        else:
            yield nearest(searched, limits)


def nearest(searched: Sequence[RankedCluster], limits: Limits) -> RankedCluster:
    """Return the one whose largest ratio of a figure to its limit is least; the first of equal ones.

    Where limits must hold with a probability, that probability comes first.
    """
    if limits.sure is None:
        return min(searched, key=lambda one: limits.worst_ratio(one.costs))
    return max(searched, key=lambda one: (one.sure(limits) or 0.0, -limits.worst_ratio(one.costs)))


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
