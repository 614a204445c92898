"""Search the best plans of pools for one cluster: engines, number formats, one pool or two.

One pool of each family comes first, then pairs of pools: what is found for an engine bounds what follows for it, so
that the best plans of every engine are known. Candidates with equal layouts of a family count as one, the best of them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.search.serving.best_first import Incumbents
from meshwright.search.serving.candidate_table import Goal, Table, ranked, table_of
from meshwright.search.serving.load_limits import PLAIN, LevelFactors, LoadLimits
from meshwright.search.serving.one_pool import OnePoolSearch
from meshwright.search.serving.pool_pairs import DecodeSide, PrefillSide
from meshwright.search.serving.replica_designs import (
    CHUNKS,
    Family,
    ReplicaDesigns,
    distinct_layouts,
    replica_designs,
)
from meshwright.search.serving.replica_layouts import LayoutRule, ReplicaLayouts, replica_layouts
from meshwright.search.serving.two_pools import TwoPoolSearch

DECODE_CHUNKS = CHUNKS[:1]
"""A pool that only decodes computes no prompts: the smallest chunk leaves the cache most room."""
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSpace:
    """What is searched.

    ``sizes``: smaller clusters whose layouts are searched too. ``rules``: further rules on layouts by the name of an
    engine; ``factors``: levels likewise.
    """

    families: tuple[Family, ...]
    limits: LoadLimits
    devices: int
    sizes: tuple[int, ...] = ()
    top: int = 5
    rules: Mapping[str, tuple[LayoutRule, ...]] = MappingProxyType({})
    factors: Mapping[str, LevelFactors] = MappingProxyType({})
    chunks: tuple[int, ...] = CHUNKS


@dataclass(frozen=True, slots=True, eq=False)
class FamilyDesigns:
    """The designs of a family by what their pools do; rows of a table of candidates."""

    serve: ReplicaDesigns
    prefill: ReplicaDesigns | None
    decode: ReplicaDesigns | None


@dataclass(frozen=True, slots=True, eq=False)
class FoundPlans:
    """Candidates in order. ``considered``: designs of replicas; ``alternatives``: numbers of replicas and pairs."""

    table: Table
    designs: tuple[FamilyDesigns, ...]
    considered: int
    legal: int
    alternatives: int
    evaluated: int
    rejected: Mapping[str, int]


def search_serving(space: ServingSpace, goal: Goal) -> FoundPlans:
    """Return the best candidates within the limits; none where nothing keeps them."""
    rejected = Counter[str]()
    incumbents = {family.stack: Incumbents(space.top) for family in space.families}
    tables: list[Table] = []
    one_pool, two_pools = [], []
    considered = 0
    for number, family in enumerate(space.families):
        layouts = replica_layouts(
            family.served.model.architecture,
            (space.devices, *space.sizes),
            space.rules.get(family.stack, ()),
        )
        limits = space.limits.for_levels(space.factors.get(family.stack, PLAIN))
        serve, refused = replica_designs(
            family, layouts, space.chunks, limits.shape, mixed=family.served.engine.mixed_batches
        )
        considered += layouts.considered * len(space.chunks)
        for reason, count in layouts.refused.items():
            rejected[reason] += count * len(space.chunks)
        rejected += refused
        one_pool.append(OnePoolSearch(number, serve, limits, goal, space.devices))
        two_pools.append(_two_pools(number, serve, layouts, limits, goal, space))
    alternatives = evaluated = legal = 0
    for search in one_pool:
        legal += len(search.designs)
        found, count, tried, refused = search.search(
            incumbents[search.designs.family.stack], distinct_layouts(search.designs))
        tables += found
        alternatives, evaluated = alternatives + count, evaluated + tried
        rejected += refused
    for pair in two_pools:
        if pair is not None:
            groups = distinct_layouts(pair.fill.designs), distinct_layouts(pair.write.designs)
            found, count, tried = pair.search(incumbents[pair.fill.designs.family.stack], groups)
            tables += found
            alternatives, evaluated = alternatives + count, evaluated + tried
    designs = tuple(
        FamilyDesigns(
            one.designs, None if two is None else two.fill.designs, None if two is None else two.write.designs
        )
        for one, two in zip(one_pool, two_pools, strict=True)
    )
    table = np.concatenate(tables) if tables else table_of(0)
    return FoundPlans(
        ranked(table, goal), designs, considered, legal, alternatives, evaluated, dict(rejected)
    )


def _two_pools(
    number: int,
    serve: ReplicaDesigns,
    layouts: ReplicaLayouts,
    limits: LoadLimits,
    goal: Goal,
    space: ServingSpace,
) -> TwoPoolSearch | None:
    """Return the search of pairs of pools; None where no two of them can serve the requests."""
    if limits.steps <= 0 or space.devices < 2:
        return None
    prefill = ReplicaDesigns(serve.family, serve.degrees, serve.chunk_tokens, mixed=False)
    decode, _ = replica_designs(serve.family, layouts, DECODE_CHUNKS, limits.shape, mixed=False)
    if not len(prefill) or not len(decode):
        return None
    fill, write = PrefillSide.of(prefill, limits), DecodeSide.of(decode, limits)
    if not len(fill.designs) or not len(write.designs):
        return None
    return TwoPoolSearch(number, fill, write, limits, goal, space.devices)


def distinct(table: Table, designs: Sequence[FamilyDesigns]) -> Table:
    """Return ranked candidates without those whose layouts a better one of the family has."""
    seen: set[tuple[Any, ...]] = set()
    kept = []
    for at, row in enumerate(table):
        own = designs[row["family"]]
        first = own.serve if row["second"] < 0 else own.prefill
        assert first is not None
        key: tuple[Any, ...] = (row["family"], *first.degrees[row["first"]].tolist())
        if row["second"] >= 0:
            assert own.decode is not None
            key += tuple(own.decode.degrees[row["second"]].tolist())
        if key not in seen:
            seen.add(key)
            kept.append(at)
    return table[kept]
