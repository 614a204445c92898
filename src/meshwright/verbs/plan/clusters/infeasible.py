"""Explain why no cluster meets the budget or deadline, and what would."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from operator import itemgetter

from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_ranking import RankedCluster, pareto_front
from meshwright.economy.cluster_row import family_row
from meshwright.economy.objectives import Objective
from meshwright.errors import InfeasibleError
from meshwright.verbs.plan.clusters.candidate_cluster import CandidateCluster
from meshwright.verbs.plan.least_memory import memory_summary
from meshwright.verbs.plan.search_space import searched_space
from meshwright.verbs.plan.smallest_cluster import smallest_cluster

MOST_REASONS = 8
CENT_OF_A_DAY = 100


class NoClusterError(InfeasibleError):
    """No cluster has an answer; ``standings`` has all of them, ``families`` the nearest of each device family."""

    def __init__(
        self,
        error: InfeasibleError,
        standings: Sequence[RankedCluster],
        families: Sequence[RankedCluster],
        limits: Limits,
    ) -> None:
        super().__init__(error.message, error.reasons, error.suggestion, error.summary)
        self.standings, self.families = tuple(standings), tuple(families)
        self.details = {"families": [family_row(standing, limits) for standing in families]}


def infeasible_error(
    found: Sequence[RankedCluster], aim: Objective, limits: Limits, largest: CandidateCluster
) -> InfeasibleError:
    """Why none of the clusters has an answer; ``largest`` is the one from which a larger one is suggested."""
    searched = [standing for standing in found if standing.state == "searched"]
    if not searched:
        return _nothing_fits(found, largest)
    if not any(standing.holds(limits) for standing in searched):
        return _beyond_limits(found, limits)
    return _nothing_measured(found, aim)


def _nothing_fits(found: Sequence[RankedCluster], largest: CandidateCluster) -> InfeasibleError:
    """No cluster on offer has a plan."""
    model = largest.course.setting.model.name
    hint = smallest_cluster(largest.course.setting, largest.scope)
    message = f"No plan of {model} fits on any of {len(found)} clusters."
    counts = Counter(f"{standing.state}: {standing.why}" for standing in found)
    reasons = [f"{count} clusters: {why}" for why, count in counts.most_common(MOST_REASONS)]
    setting = largest.course.setting
    memory = memory_summary(searched_space(largest.scope, setting), largest.question.header, setting)
    summary = [*reasons, f"on {largest.offer.on} {memory[0]}", *memory[1:]] if memory else ()
    return InfeasibleError(message, reasons, hint, summary)


def _nothing_measured(found: Sequence[RankedCluster], aim: Objective) -> InfeasibleError:
    """Plans were found, but only where what the objective needs is unknown, or where a training does not get on."""
    known = [standing for standing in found if aim.known(standing.course.setting.cluster)]
    reasons = [
        f"{standing.offer.on}: {standing.why or 'failures come quicker than work gets done'}"
        for standing in known[:MOST_REASONS]
    ]
    message = f"No plan was found where it is known what is asked for: {aim.summary}."
    hint = (
        f"--assume {aim.say}" if aim.say else "fewer failures, faster storage or quicker restarts (--assume)"
    )
    return InfeasibleError(message, reasons, hint)


def _beyond_limits(found: Sequence[RankedCluster], limits: Limits) -> InfeasibleError:
    """Plans fit, and none keeps the limits."""
    best = pareto_front(found)
    conditions = []
    if limits.budget_usd is not None:
        conditions.append(f"the budget of {limits.budget_usd:,.0f} USD")
    if limits.deadline_days is not None:
        conditions.append(f"the deadline of {limits.deadline_days:,g} days")
    if limits.power_kw is not None:
        conditions.append(f"the power of {limits.power_kw:,g} kW")
    if not conditions:
        conditions.append("the memory of a device")
    reasons = [f"{standing.offer.on}: {_figures(standing, limits)}" for standing in best[:MOST_REASONS]]
    if len(best) > MOST_REASONS:
        reasons.append(
            f"{len(best) - MOST_REASONS} more that nothing beats, between these and {_figures(best[-1], limits)}"
        )
    hint = " or ".join(_nearest(best, limits)) or "another cluster, or --assume a price"
    surely = "" if limits.sure is None else f" with a probability of {limits.sure:.0%}"
    return InfeasibleError(f"No training keeps to {' and '.join(conditions)}{surely}.", reasons, hint)


def _figures(standing: RankedCluster, limits: Limits) -> str:
    costs = standing.costs
    figures = [f"{costs.days:,.1f} days", "price unknown" if costs.usd is None else f"{costs.usd:,.0f} USD"]
    if limits.power_kw is not None:
        figures.append("power unknown" if costs.power_kw is None else f"{costs.power_kw:,.0f} kW")
    if limits.sure is not None:
        figures.append(f"kept in {standing.sure(limits):.0%} of cases")
    return ", ".join(figures)


def _nearest(best: Sequence[RankedCluster], limits: Limits) -> Iterator[str]:
    """Yield the least budget for this deadline, or the least deadline for this budget; else the cheapest."""
    in_time = [(usd, one) for one in best if (usd := one.least_budget(limits)) is not None]
    in_budget = [(days, one) for one in best if (days := one.least_deadline(limits)) is not None]
    if limits.budget_usd is not None and in_time:
        usd, standing = min(in_time, key=itemgetter(0))
        yield f"--budget {ceil(usd)} would do ({standing.offer.on})"
    if limits.deadline_days is not None and in_budget:
        days, standing = min(in_budget, key=itemgetter(0))
        yield f"--deadline {_up(days):.2f} would do ({standing.offer.on})"
    if not in_time and not in_budget:
        yield from _cheapest(best, limits)


def _cheapest(best: Sequence[RankedCluster], limits: Limits) -> Iterator[str]:
    """Yield the least budget at all, with the days that it takes."""
    powered = Limits(power_kw=limits.power_kw, sure=limits.sure)
    pairs = [(usd, one) for one in best if (usd := one.least_budget(powered)) is not None]
    if pairs:
        _, standing = min(pairs, key=itemgetter(0))
        each = replace(powered, sure=None if limits.sure is None else (1 + limits.sure) / 2)
        usd, days = standing.least_budget(each), standing.least_deadline(each)
        if usd is not None and days is not None:
            yield f"--budget {ceil(usd)} --deadline {_up(days):.2f} would do ({standing.offer.on}, the cheapest)"


def _up(days: float) -> float:
    return ceil(days * CENT_OF_A_DAY) / CENT_OF_A_DAY
