"""Kinds of layers: layers with equal costs on every stage, and pieces of the chain with equal kinds.

Models repeat few kinds of layers. Two pieces with equal kinds in equal order cost equally much wherever they lie,
so what is known of one is known of the other.
"""

import numpy as np
from numpy.typing import NDArray

from meshwright.search.partition.layer_chain import Ints
from meshwright.search.partition.objective import Task


def kinds_of(task: Task) -> Ints:
    """Return the kind of every layer, by number: (L,)."""
    columns = [measure.costs.reshape(-1, task.chain.layers) for measure in (task.goal, task.limit)]
    _, kinds = np.unique(np.concatenate(columns), axis=1, return_inverse=True)
    return np.asarray(kinds).reshape(-1)


def pieces_of(kinds: Ints) -> NDArray[np.int64]:
    """Return a number for layers i to j exclusive, equal for equal pieces: (L + 1, L + 1); 0 for no layers."""
    size = len(kinds) + 1
    names = np.zeros((size, size), dtype=np.int64)
    known: dict[tuple[int, int], int] = {}
    for last in range(1, size):
        kind = int(kinds[last - 1])
        for first in range(last):
            key = int(names[first, last - 1]), kind
            names[first, last] = known.setdefault(key, len(known) + 1)
    return names
