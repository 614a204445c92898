"""Modes of a rank's stages for known layers, by trying every combination.

Only within a rank do modes depend on each other, for its stages share its limit. O(modes^V).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from meshwright.search.partition.chunk_directions import DirectedChunk
from meshwright.search.partition.layer_chain import Floats, Measure
from meshwright.search.partition.objective import Task
from meshwright.search.partition.partial_partitions import States


def in_best_modes(task: Task, states: States, legs: Sequence[DirectedChunk], rank: int) -> States:
    """Return states in the modes with the least load of their rank, without those above the limit in all."""
    modes = len(task.goal.costs)
    goal, limit = (_costs(measure, states, legs, rank) for measure in (task.goal, task.limit))
    best = np.full(len(states), np.inf)
    chosen = np.zeros((len(states), len(legs)), dtype=np.int64)
    for combination in product(range(modes), repeat=len(legs)):
        load = _together(goal, combination) + task.goal.base[rank]
        fits = _together(limit, combination) + task.limit.base[rank] <= task.ceiling[rank]
        better = fits & (load < best)
        best = np.where(better, load, best)
        chosen[better] = combination
    largest = np.maximum(states.largest, best)
    return replace(states, largest=largest, modes=chosen).take(np.isfinite(best))


def _costs(measure: Measure, states: States, legs: Sequence[DirectedChunk], rank: int) -> list[Floats]:
    """Return the cost of every leg's stage in every mode: (modes, moments, n) each."""
    result = []
    for index, leg in enumerate(legs):
        first, last = states.share(legs, index)
        sums = measure.sums[:, :, leg.stages[rank]]
        result.append(sums[..., last] - sums[..., first])
    return result


def _together(costs: Sequence[Floats], combination: Sequence[int]) -> Floats:
    """Return the sum of a rank's stages in one combination of modes, largest over the moments: (n,)."""
    total = sum((of_leg[mode] for of_leg, mode in zip(costs, combination, strict=True)), start=np.zeros(1))
    return np.asarray(total.max(0))
