"""A lower bound of a layer's seconds over all orders of experts: busiest rank, nodes and ranks by themselves.

What this ignores: that one order has to serve all three, so the true best may be longer.
"""

import numpy as np

from meshwright.placement.expert_order.problem import DispatchLoad, Floats, Task
from meshwright.program.expert_dispatch.hit_probability import hit_probability_bound


def least_seconds(task: Task) -> Floats:
    """Seconds that no order of a layer is below: (layers,)."""
    return task.seconds(
        DispatchLoad(_busiest(task), *(_reached(task, parts) for parts in (task.nodes, task.ranks)))
    )


def _busiest(task: Task) -> Floats:
    """Of the j·ranks + 1 most popular experts some rank has j + 1, and the least popular ones besides."""
    size = task.experts // task.ranks
    falling = -np.sort(-task.singles, axis=1)
    rising = np.concatenate([np.zeros((task.layers, 1)), falling[:, ::-1].cumsum(1)], axis=1)
    found = [np.full(task.layers, task.chosen / task.ranks)]
    for j in range(size):
        last = j * task.ranks
        found.append(falling[:, last - j : last + 1].sum(1) + rising[:, size - j - 1])
    return np.asarray(np.max(found, axis=0)) * task.ranks / task.chosen


def _reached(task: Task, parts: int) -> Floats:
    """Parts that a token reaches at least, with as many pairs inside of parts as there can be."""
    together = _most_pairs(task, task.experts // parts)
    met_at_least = hit_probability_bound(np.full(task.layers, float(task.chosen)), together, task.chosen)
    return np.maximum(met_at_least, -(-task.chosen * parts // task.experts))


def _most_pairs(task: Task, size: int) -> Floats:
    """Pairs inside of parts of so many experts: no more than each expert's best partners, or than eigenvalues allow.

    With X of orthonormal columns, one for each part, they are size/2·tr XᵀCX; the vector of ones is in its span, so
    that is at most size/2·(1ᵀC1/E + the largest eigenvalues of C where 1 is projected out) (Rendl and Wolkowicz, 1995),
    for any diagonal of C, which is taken off again.
    """
    count, parts, pairs = task.experts, task.experts // size, task.pairs
    partners = -np.sort(-pairs, axis=2)[:, :, : size - 1].sum((1, 2)) / 2
    found = [partners]
    apart = np.eye(count) - 1 / count
    for diagonal in (np.zeros(pairs.shape[:2]), pairs.sum(2).mean(1)[:, None] - pairs.sum(2)):
        table = pairs + diagonal[:, :, None] * np.eye(count)
        largest = np.linalg.eigvalsh(apart @ table @ apart)[:, count - parts + 1 :].sum(1)
        inside = size * (table.sum((1, 2)) / count + largest) - diagonal.sum(1)
        found.append(inside / 2)
    return np.asarray(np.min(found, axis=0))
