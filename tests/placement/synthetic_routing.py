"""Tokens of made-up routers: experts of unlike popularity in clusters, of which a token prefers one."""

import numpy as np

from meshwright.placement.expert_order.problem import DispatchLoad, Task


def choices(rng, experts, chosen, tokens, clusters=2, preference=3.0, skew=0.5):
    """One layer's choices: (tokens, experts), ones and zeros."""
    popularity = rng.permutation(np.arange(1, experts + 1) ** -skew)
    cluster = rng.permutation(np.arange(experts) % clusters)
    preferred = rng.integers(clusters, size=tokens)[:, None] == cluster
    value = np.log(popularity) + preference * preferred + rng.gumbel(size=(tokens, experts))
    made = np.zeros((tokens, experts))
    np.put_along_axis(made, np.argsort(-value, axis=1)[:, :chosen], 1, 1)
    return made


def counted(made):
    """Singles and pairs of layers' choices, per token."""
    singles = np.stack([layer.mean(0) for layer in made])
    pairs = np.stack([layer.T @ layer / len(layer) for layer in made])
    pairs[:, np.arange(pairs.shape[1]), np.arange(pairs.shape[1])] = 0
    return singles, pairs


def seconds(meeting):
    """An exchange between nodes or inside of them, and products."""
    return DispatchLoad(*meeting).busiest * (np.maximum(2.0 * meeting.nodes, 0.7 * meeting.ranks) + 1.5) + 0.5


def task_of(rng, experts, chosen, ranks, nodes, layers=1, tokens=400, **more):
    """A task of such routers."""
    made = [choices(rng, experts, chosen, tokens, **more) for _ in range(layers)]
    return Task(*counted(made), chosen, ranks, nodes, seconds)
