"""Choose a few small sets of features that cover every combination of three.

Faults of parallel training come from what meets: a pipeline and sharding, tensor parallelism and a tied table. Most
faults that a combination triggers need one to three of its parts (Kuhn, Wallace and Gallo, IEEE TSE 30(6), 2004), so
combinations of three are what a covering set is asked for. A feature costs ranks: a degree of 2 doubles them, others
cost nothing; meshes over the same ranks cost together what the larger one does. The sets are chosen greedily, the one
with most new combinations first; ties go to the earlier one, so that the answer is always the same.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

STRENGTH = 3
Combination = tuple[str, ...]
Meshes = Sequence[Collection[str]]


@dataclass(frozen=True, slots=True)
class Covering:
    """Sets of features, and which combinations of ``STRENGTH`` meet in one of them."""

    sets: tuple[tuple[str, ...], ...]
    covered: tuple[Combination, ...]
    not_covered: tuple[Combination, ...]


def covering(costs: Mapping[str, int], limit: int, meshes: Meshes = ()) -> Covering:
    """Return sets of features, each of cost at most ``limit``, that together cover all affordable combinations.

    ``meshes`` are sets of features that lie on the same ranks: of these products only the largest counts. Of three
    features that are too dear together, every two meet if they can, and each is in a set if it can be.
    """
    names = tuple(costs)
    size = min(STRENGTH, len(names))
    by_size = {n: list(combinations(names, n)) for n in range(size + 1)}
    left = {one for ones in by_size.values() for one in ones if cost_of(one, costs, meshes) <= limit}
    covered = tuple(one for one in by_size[size] if one in left and one)
    candidates = _largest(names, costs, limit, meshes)
    sets: list[tuple[str, ...]] = []
    while left:
        best = max(candidates, key=lambda features: sum(set(one) <= set(features) for one in left))
        sets.append(best)
        left = {one for one in left if not set(one) <= set(best)}
    return Covering(tuple(sets), covered, tuple(one for one in by_size[size] if one and one not in covered))


def cost_of(names: Collection[str], costs: Mapping[str, int], meshes: Meshes) -> int:
    """Return the least number of ranks of a plan with these features."""
    others = prod(costs[name] for name in names if not any(name in mesh for mesh in meshes))
    of_meshes = (prod(costs[name] for name in names if name in mesh) for mesh in meshes)
    return others * max(of_meshes, default=1)


def _largest(
    names: Sequence[str], costs: Mapping[str, int], limit: int, meshes: Meshes
) -> list[tuple[str, ...]]:
    """All that costs nothing, with every choice of the others to which none can be added."""
    dear = [name for name in names if costs[name] > 1]
    choices = [
        set(chosen)
        for size in range(len(dear) + 1)
        for chosen in combinations(dear, size)
        if cost_of(chosen, costs, meshes) <= limit
    ]
    full = [chosen for chosen in choices if not any(chosen < other for other in choices)]
    return [tuple(name for name in names if costs[name] == 1 or name in chosen) for chosen in full]
