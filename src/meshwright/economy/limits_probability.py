"""Say how often the chosen cluster misses limits that its predicted values keep."""

from collections.abc import Sequence

from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_ranking import RankedCluster, ranked
from meshwright.economy.objectives import Objective
from meshwright.economy.training_draws import OUTSIDE


def doubt(
    chosen: RankedCluster, standings: Sequence[RankedCluster], aim: Objective, limits: Limits
) -> str | None:
    """Say which limits the chosen cluster misses in more cases than an 80 % interval leaves above its end.

    Names the best cluster of its family that misses none of them so often. None where no limit is in doubt, or where
    the limits must hold with a probability.
    """
    if chosen.draws is None or limits.sure is not None:
        return None
    missed = {name: share for name, share in chosen.draws.missed(limits).items() if share > OUTSIDE}
    if not missed:
        return None
    own = [one for one in ranked(standings, aim, limits) if one.family == chosen.family and one is not chosen]
    surer = next((one for one in own if _most(one, limits) <= OUTSIDE), None)
    cases = " and ".join(f"the {name} in {share:.0%} of cases" for name, share in missed.items())
    if surer is None:
        return f"misses {cases}"
    return f"misses {cases}; {surer.offer.cluster.devices} devices make it {_most(surer, limits):.0%}"


def _most(standing: RankedCluster, limits: Limits) -> float:
    assert standing.draws is not None, "it was searched"
    return max(standing.draws.missed(limits).values())
