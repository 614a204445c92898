"""Search the best plans of pools for one cluster: engines, number formats, one pool or two.

One pool of each family comes first, then pairs of pools: what is found for an engine bounds what follows for it, so
that the best plans of every engine are known. Candidates with equal layouts of a family count as one, the best of them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.levels import Level
from meshwright.search.serving.best_first import Incumbents
from meshwright.search.serving.candidate_table import Goal, Table, ranked, table_of
from meshwright.search.serving.replica_layouts import LayoutRule, ReplicaLayouts, replica_layouts
from meshwright.verbs.plan.serving.pools.load_limits import LoadLimits
from meshwright.verbs.plan.serving.pools.one_pool import OnePoolSearch
from meshwright.verbs.plan.serving.pools.pool_pairs import DecodeSide, PrefillSide
from meshwright.verbs.plan.serving.pools.pool_split import PairSpace
from meshwright.verbs.plan.serving.pools.replica_designs import (
    CHUNKS,
    Family,
    ReplicaDesigns,
    distinct_layouts,
    replica_designs,
)
from meshwright.verbs.plan.serving.pools.two_pools import TwoPoolSearch

DECODE_CHUNKS = CHUNKS[:1]
"""A pool that only decodes computes no prompts: the smallest chunk leaves the cache most room."""
Rows = NDArray[np.int64]


FEW = 2
"""Sequences of a rank below which a whole number of them is far from what limits allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSpace:
    """The space of a search.

    ``sizes``: smaller clusters whose layouts are searched too. ``rules``: further rules on layouts for each family;
    ``levels`` by the name of an engine. ``no_pipelines``: engines whose pipelines hand no caches over.
    """

    families: tuple[Family, ...]
    limits: LoadLimits
    devices: int
    sizes: tuple[int, ...] = ()
    top: int = 5
    rules: Mapping[Family, tuple[LayoutRule, ...]] = field(default_factory=dict)
    levels: Mapping[str, Level] = field(default_factory=dict)
    chunks: tuple[int, ...] = CHUNKS
    no_pipelines: frozenset[str] = frozenset()


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


@dataclass(frozen=True, slots=True, eq=False)
class FamilySearches:
    """The searches of a family's plans, and how many designs were considered and refused."""

    one_pool: OnePoolSearch
    two_pools: TwoPoolSearch | None
    considered: int
    refused: Counter[str]

    @property
    def designs(self) -> FamilyDesigns:
        """Return the designs that the rows of candidates are of."""
        pair = self.two_pools
        if pair is None:
            return FamilyDesigns(self.one_pool.designs, None, None)
        return FamilyDesigns(self.one_pool.designs, pair.space.fill.designs, pair.space.write.designs)


def search_serving(space: ServingSpace, goal: Goal) -> FoundPlans:
    """Return the best candidates within the limits; none where nothing keeps them."""
    searches = family_searches(space, goal)
    rejected = sum((one.refused for one in searches), Counter[str]())
    incumbents = {family.stack: Incumbents(space.top) for family in space.families}
    tables: list[Table] = []
    alternatives = evaluated = 0
    for family, one in zip(space.families, searches, strict=True):
        own = one.one_pool
        found, count, tried, refused = own.search(incumbents[family.stack], distinct_layouts(own.designs))
        tables += found
        alternatives, evaluated = alternatives + count, evaluated + tried
        rejected += refused
    for family, one in zip(space.families, searches, strict=True):
        pair = one.two_pools
        if pair is not None:
            groups = distinct_layouts(pair.space.fill.designs), distinct_layouts(pair.space.write.designs)
            found, count, tried = pair.search(incumbents[family.stack], groups)
            tables += found
            alternatives, evaluated = alternatives + count, evaluated + tried
    return FoundPlans(
        ranked(
            np.concatenate(tables) if tables else table_of(0),
            goal,
            [family.formats.changes for family in space.families],
        ),
        tuple(one.designs for one in searches),
        sum(one.considered for one in searches),
        sum(len(one.one_pool.designs) for one in searches),
        alternatives,
        evaluated,
        dict(rejected),
    )


def family_searches(space: ServingSpace, goal: Goal) -> list[FamilySearches]:
    """Return the searches of each family, with the designs that fit."""
    return [_searches_of(number, family, space, goal) for number, family in enumerate(space.families)]


def _searches_of(number: int, family: Family, space: ServingSpace, goal: Goal) -> FamilySearches:
    sizes = (space.devices, *space.sizes)
    layouts = replica_layouts(family.served.model.architecture, sizes, space.rules.get(family, ()))
    limits = space.limits.at_level(space.levels.get(family.stack))
    mixed = family.served.engine.mixed_batches
    serve, refused = replica_designs(family, layouts, space.chunks, limits.shape, mixed=mixed)
    for reason, count in layouts.refused.items():
        refused[reason] += count * len(space.chunks)
    return FamilySearches(
        OnePoolSearch(number, serve, limits, goal, space.devices),
        _two_pools(number, serve, layouts, limits, goal, space),
        layouts.considered * len(space.chunks),
        refused,
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
    if serve.family.stack in space.no_pipelines:
        prefill, decode = prefill.without_pipelines, decode.without_pipelines
    if not len(prefill) or not len(decode):
        return None
    write = DecodeSide.of(decode, limits)
    in_parts = bool(np.any(write.most < FEW * write.designs.batches))
    fill = PrefillSide.of(prefill, limits, all_of_them=in_parts)
    if not len(fill.designs) or not len(write.designs):
        return None
    return TwoPoolSearch(number, PairSpace(fill, write, limits, goal, space.devices))


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
