"""Search several clusters for one question: bound all of them first, then search the ones left open.

A cluster is searched unless another one of the same device family beats it whatever its plans do: no worse in time,
money, energy and the objective at the least time that any of its legal plans that may fit can take
(``cost/lower_bounds/coarse_time_and_memory.py``). Those with the least bound of time come first: what comes later
can hardly beat them. A cluster is searched only if it has a plan below the time from which on another one beats it.
Clusters are searched in waves, the clusters of a wave together (``search_clusters.py``). One that the fastest plan of
another in the wave would beat waits for the next wave.
So the set of what no cluster beats is exact, and so is the best by the objective within any limits, of all clusters and
of each family.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf

from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_ranking import RankedCluster, dominating_cluster
from meshwright.economy.objectives import Objective
from meshwright.verbs.plan.clusters.candidate_cluster import CandidateCluster
from meshwright.verbs.plan.clusters.cluster_bounds import bound_clusters
from meshwright.verbs.plan.clusters.proposal_cost import PricedAnswer, priced_answer
from meshwright.verbs.plan.clusters.search_clusters import search_clusters
from meshwright.verbs.plan.progress_time import with_remaining_time
from meshwright.verbs.plan.search_space import Progress

WAVE = 32
"""Clusters that are searched together at most."""


def rank_clusters(
    contenders: Sequence[CandidateCluster], aim: Objective, limits: Limits, progress: Progress | None = None
) -> list[RankedCluster | PricedAnswer]:
    """Search what another cluster of its device family does not beat; results keep the clusters' order."""
    found: dict[int, RankedCluster | PricedAnswer] = {}
    least: dict[int, float] = {}
    contenders = with_bounds(contenders, progress)
    for index, one in enumerate(contenders):
        bound = one.least_step_s()
        if bound is None:
            found[index] = RankedCluster(
                one.offer, one.course, "nothing is legal", why="no degrees divide it"
            )
        elif bound == inf:
            why = "states and activations take more than a device has, by a lower bound"
            found[index] = RankedCluster(one.offer, one.course, "nothing fits", why=why)
        else:
            least[index] = bound
    open_ = sorted(least, key=lambda index: contenders[index].course.seconds(least[index]) or inf)
    told = None if progress is None else with_remaining_time(progress)
    searched: dict[str, list[RankedCluster]] = defaultdict(list)
    while open_:
        if told is not None:
            done = len(least) - len(open_)
            told(f"plans of clusters: {done} of {len(least)}", done / len(least))
        wave: dict[int, CandidateCluster] = {}
        waiting = []
        for index in open_:
            one = contenders[index]
            if len(wave) == WAVE or _may_be_beaten(one, least[index], wave.values(), aim, limits):
                waiting.append(index)
            elif beaten := one.beaten(least[index], searched[one.family], aim, limits):
                found[index] = beaten
            elif _may_be_beaten(one, one.found.fastest_s, wave.values(), aim, limits):
                waiting.append(index)
            else:
                wave[index] = one
        for index, priced in zip(wave, _search(list(wave.values()), limits), strict=True):
            found[index] = priced
            searched[contenders[index].family].append(priced.standing)
        open_ = waiting
    return [found[index] for index in range(len(contenders))]


def _may_be_beaten(
    one: CandidateCluster,
    step_s: float | None,
    wave: Iterable[CandidateCluster],
    aim: Objective,
    limits: Limits,
) -> bool:
    """Return true if a plan of ``step_s`` would be beaten by the fastest plan of another cluster in the wave."""
    fastest = [other.at_fastest() for other in wave if other.family == one.family]
    others = replace(limits, sure=None)
    return step_s is not None and dominating_cluster(one.course, step_s, fastest, aim, others) is not None


def _search(wave: Sequence[CandidateCluster], limits: Limits) -> Iterator[PricedAnswer]:
    """Search the clusters of a wave that were not searched before, and yield all with the prices of their plans."""
    new = [one for one in wave if one.found.recommended is None]
    asked = [(one.question, one.scope, one.setting) for one in new]
    for one, known in zip(new, search_clusters(asked), strict=True):
        one.found.recommended = known
    for one in wave:
        yield priced_answer(one.offer, one.course, one.candidates(), limits)


def with_bounds(
    contenders: Sequence[CandidateCluster], progress: Progress | None = None
) -> Sequence[CandidateCluster]:
    """Return the clusters with the bounds of their plans, which are found together."""
    if all(one.bounds is not None for one in contenders):
        return contenders
    told = None if progress is None else with_remaining_time(progress)

    def done(part: float) -> None:
        if told is not None:
            told("bounds of clusters", part)

    done(0.0)
    bounds = bound_clusters([(one.scope, one.setting) for one in contenders], done)
    return [replace(one, bounds=found) for one, found in zip(contenders, bounds, strict=True)]
