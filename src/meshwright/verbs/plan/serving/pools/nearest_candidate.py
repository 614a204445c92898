"""The candidate that misses limits on latency by least, where none keeps them.

It is the one whose worst mean is the smallest part of its limit, at the load that is asked for; without a load, of one
request at a time. Where no plan carries a rate it is the one that carries most requests/s.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from meshwright.search.serving.candidate_table import Goal, Table, table_of
from meshwright.verbs.plan.serving.pools.load_limits import LoadLimits
from meshwright.verbs.plan.serving.pools.one_pool import OnePoolSearch
from meshwright.verbs.plan.serving.pools.pool_pairs import PoolPairs
from meshwright.verbs.plan.serving.pools.serving_search import (
    FamilyDesigns,
    FamilySearches,
    ServingSpace,
    family_searches,
    search_serving,
)
from meshwright.verbs.plan.serving.pools.two_pools import TwoPoolSearch

MOST_PRICED = 4000
"""Alternatives of a family whose means are computed, those with the best bounds."""
Floats = NDArray[np.float64]


def nearest_candidate(space: ServingSpace) -> tuple[Table, tuple[FamilyDesigns, ...]]:
    """Return one candidate, or none where nothing fits, with the designs that its rows are of."""
    limits = space.limits
    clients = limits.concurrency or (1 if limits.closed else None)
    loose = replace(limits, concurrency=clients, ttft_s=inf, tpot_s=inf)
    goal = Goal("latency", 1.0, given_rate=not limits.closed)
    found: list[Table] = []
    designs: tuple[FamilyDesigns, ...] = ()
    for asked in (replace(loose, tpot_s=limits.tpot_s), loose):
        searches = family_searches(replace(space, limits=asked), goal)
        designs = tuple(one.designs for one in searches)
        found = [table for one in searches for table in _priced(one, limits)]
        table = np.concatenate(found) if found else table_of(0)
        table = table[np.isfinite(table["ttft_s"])]
        if len(table):
            return table[[int(np.argmin(worst_part(table, limits)))]], designs
    return _most_requests(space)


def worst_part(table: Table, limits: LoadLimits) -> Floats:
    """Return the worst mean of each candidate as a part of its limit."""
    worst: Floats = np.maximum(table["ttft_s"] / limits.ttft_s, table["tpot_s"] / limits.tpot_s)
    return worst


def _priced(searches: FamilySearches, limits: LoadLimits) -> Sequence[Table]:
    pair = searches.two_pools
    tables = [_one_pool(searches.one_pool)]
    return tables if pair is None else [*tables, _two_pools(pair, limits)]


def _one_pool(search: OnePoolSearch) -> Table:
    every = search.alternatives()
    if every is None or not len(every):
        return table_of(0)
    rows = np.argsort(every.least_latency_s, kind="stable")[:MOST_PRICED]
    return search.evaluate(every.take(rows), any_means=True)


def _two_pools(search: TwoPoolSearch, limits: LoadLimits) -> Table:
    pairs = PoolPairs.of(search.space.fill, search.space.write, search.space.limits, search.space.devices)
    if not len(pairs):
        return table_of(0)
    bounds = search.space.pair_bounds(pairs)
    tpot = search.space.write.least_tpot_s[pairs.decode]
    first = pairs.least_latency_s - limits.steps * tpot
    worst = np.where(bounds > -inf, np.maximum(first / limits.ttft_s, tpot / limits.tpot_s), inf)
    order = np.argsort(worst, kind="stable")
    order = order[np.isfinite(worst[order])]
    splits = search.space.splits(pairs.take(order[:MOST_PRICED]))
    return search.evaluate(splits.take(np.arange(min(len(splits), MOST_PRICED))), any_means=True)


def _most_requests(space: ServingSpace) -> tuple[Table, tuple[FamilyDesigns, ...]]:
    """Return the candidate of most requests/s without limits; its load is then the rate that it does not carry."""
    loose = replace(space.limits, concurrency=None, rate_per_s=None, ttft_s=inf, tpot_s=inf)
    found = search_serving(replace(space, limits=loose, top=1), Goal("throughput", 1.0, given_rate=False))
    table = found.table[:1].copy()
    table["concurrency"] = 0
    table["ttft_s"] = np.nan
    return table, found.designs
