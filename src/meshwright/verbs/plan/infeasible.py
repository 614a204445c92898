"""Explain why no cluster meets the budget or deadline, and what would."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil

from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_ranking import RankedCluster, pareto_front
from meshwright.economy.objectives import Objective
from meshwright.errors import InfeasibleError
from meshwright.verbs.plan.least_memory import memory_summary
from meshwright.verbs.plan.rank_clusters import OfferedCluster
from meshwright.verbs.plan.search_space import searched_space
from meshwright.verbs.plan.smallest_cluster import smallest_cluster

MOST_REASONS = 8
CENT_OF_A_DAY = 100


def infeasible_error(
    found: Sequence[RankedCluster], aim: Objective, limits: Limits, largest: OfferedCluster
) -> InfeasibleError:
    """Why none of the clusters has an answer; ``largest`` is the one from which a larger one is suggested."""
    searched = [standing for standing in found if standing.state == "searched"]
    if not searched:
        return _nothing_fits(found, largest)
    if not any(standing.holds(limits) for standing in searched):
        return _beyond_limits(found, limits)
    return _nothing_measured(found, aim)


def _nothing_fits(found: Sequence[RankedCluster], largest: OfferedCluster) -> InfeasibleError:
    """No cluster on offer has a plan."""
    model = largest.course.setting.model.name
    hint = smallest_cluster(largest.course.setting, largest.scope)
    message = f"No plan of {model} fits on any of {len(found)} clusters."
    counts = Counter(f"{standing.state}: {standing.why}" for standing in found)
    reasons = [f"{count} clusters: {why}" for why, count in counts.most_common(MOST_REASONS)]
    setting = largest.course.setting
    memory = memory_summary(searched_space(largest.scope, setting), largest.header, setting)
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
    """Plans fit, and none keeps to the budget and the deadline."""
    best = pareto_front(found)
    conditions = []
    if limits.budget_usd is not None:
        conditions.append(f"the budget of {limits.budget_usd:,.0f} USD")
    if limits.deadline_days is not None:
        conditions.append(f"the deadline of {limits.deadline_days:,g} days")
    reasons = [f"{standing.offer.on}: {_time_and_money(standing)}" for standing in best[:MOST_REASONS]]
    if len(best) > MOST_REASONS:
        reasons.append(
            f"{len(best) - MOST_REASONS} more that nothing beats, between these and {_time_and_money(best[-1])}"
        )
    hint = " or ".join(_nearest(best, limits)) or "another cluster, or --assume a price"
    return InfeasibleError(f"No training keeps to {' and '.join(conditions)}.", reasons, hint)


def _time_and_money(standing: RankedCluster) -> str:
    costs = standing.costs
    money = "price unknown" if costs.usd is None else f"{costs.usd:,.0f} USD"
    return f"{costs.days:,.1f} days, {money}"


def _nearest(best: Sequence[RankedCluster], limits: Limits) -> Iterator[str]:
    """Yield the least budget for this deadline, or the least deadline for this budget; else the cheapest."""
    priced = [(s.costs.usd, s) for s in best if s.costs.usd is not None]
    in_time = [(usd, s) for usd, s in priced if limits.in_time(s.costs)]
    in_budget = [(s.costs.days, s) for s in best if limits.in_budget(s.costs) and s.costs.days is not None]
    if limits.budget_usd is not None and in_time:
        usd, standing = min(in_time, key=lambda pair: pair[0])
        yield f"--budget {ceil(usd)} would do ({standing.offer.on})"
    if limits.deadline_days is not None and in_budget:
        days, standing = min(in_budget, key=lambda pair: pair[0])
        yield f"--deadline {_up(days):.2f} would do ({standing.offer.on})"
    if not in_time and not in_budget and priced:
        usd, standing = min(priced, key=lambda pair: pair[0])
        days = standing.costs.days or 0.0
        yield f"--budget {ceil(usd)} --deadline {_up(days):.2f} would do ({standing.offer.on}, the cheapest)"


def _up(days: float) -> float:
    return ceil(days * CENT_OF_A_DAY) / CENT_OF_A_DAY
