"""Cut layers into pipeline stages and choose a strategy for each of them, both at once.

Step time grows with the slowest stage and with the sum of all, and each of these with every stage's own seconds. So a
stage of given layers takes its quickest assignment that fits (``strategy_assignment.py``). Of all cuts the one wins
whose slowest stage is quickest, and of those the one with the least sum of all stages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.search.layers.strategy_assignment import ChainLabels

WIDEST = 1.6
"""A stage has at most so many times the mean number of layers, and a few more."""
MORE = 2
CLOSE = 1e-9


@dataclass(frozen=True)
class StageAssignment:
    """Stages of layers ``stops[k]`` to ``stops[k + 1]``, with seconds and bytes, and the strategy of each layer."""

    stops: tuple[int, ...]
    seconds: tuple[float, ...]
    strategies: tuple[int, ...]
    held: tuple[float, ...]


def assigned_stages(
    kinds: Sequence[int], chains: Sequence[ChainLabels], stops: Sequence[int] | None = None
) -> StageAssignment | None:
    """Return the best cut of layers of these kinds into a stage for each chain; None where nothing fits.

    The first and the last of ``kinds`` are the embedding and the head, so that the first and the last stage have a
    layer besides. ``stops``: a cut to keep.
    """
    known: dict[tuple[int, tuple[int, ...]], float] = {}

    def seconds(stage: int, first: int, stop: int) -> float:
        key = stage, tuple(kinds[first:stop])
        if key not in known:
            labels = chains[stage].of(key[1])
            best = labels.best(chains[stage].capacity)
            known[key] = np.inf if best is None else float(labels.seconds[best])
        return known[key]

    found = tuple(stops) if stops is not None else best_cut(len(kinds), len(chains), seconds)
    if found is None:
        return None
    of_stages = tuple(seconds(k, found[k], found[k + 1]) for k in range(len(chains)))
    if not np.isfinite(of_stages).all():
        return None
    strategies: list[int] = []
    held: list[float] = []
    for stage, chain in enumerate(chains):
        one = chain.assignment(kinds[found[stage] : found[stage + 1]])
        assert one is not None, "the stage fits"
        strategies += one.strategies
        held.append(one.bytes)
    return StageAssignment(found, of_stages, tuple(strategies), tuple(held))


def assigned_chunks(
    kinds: Sequence[int], chains: Sequence[ChainLabels], stops: Sequence[int], blocks: int
) -> StageAssignment | None:
    """Return the best strategies of the layers of ranks that hold several stages each; None where nothing fits.

    Stage s, from ``stops[s]`` to ``stops[s + 1]``, is on rank s mod P. The costs of rank r are those of ``chains[r]``,
    in which layers of its c-th stage are of kind c·``blocks`` + kind. Seconds and bytes are those of ranks.
    """
    stages, ranks = len(stops) - 1, len(chains)
    strategies = [0] * len(kinds)
    seconds, held = [], []
    for rank, chain in enumerate(chains):
        own = [
            (layer, kinds[layer] + chunk * blocks)
            for chunk, stage in enumerate(range(rank, stages, ranks))
            for layer in range(stops[stage], stops[stage + 1])
        ]
        one = chain.assignment([kind for _, kind in own])
        if one is None:
            return None
        for (layer, _), strategy in zip(own, one.strategies, strict=True):
            strategies[layer] = strategy
        seconds.append(one.seconds)
        held.append(one.bytes)
    return StageAssignment(tuple(stops), tuple(seconds), tuple(strategies), tuple(held))


def best_cut(layers: int, stages: int, seconds: Callable[[int, int, int], float]) -> tuple[int, ...] | None:
    """Return the stops of the cut whose slowest stage is quickest, and of those the one with the least sum.

    ``seconds(stage, first, stop)`` is infinite where nothing fits.
    """
    slowest = _least(layers, stages, seconds, max)
    if slowest is None:
        return None
    limit = max(seconds(k, slowest[k], slowest[k + 1]) for k in range(stages)) * (1 + CLOSE)

    def within(stage: int, first: int, stop: int) -> float:
        found = seconds(stage, first, stop)
        return found if found <= limit else np.inf

    return _least(layers, stages, within, lambda a, b: a + b)


def _least(
    layers: int,
    stages: int,
    seconds: Callable[[int, int, int], float],
    joined: Callable[[float, float], float],
) -> tuple[int, ...] | None:
    """Return the stops whose joined seconds are the least."""
    widest = layers if stages == 1 else int(np.ceil(WIDEST * layers / stages)) + MORE
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, (0,))}
    for stage in range(stages):
        left = stages - stage - 1
        found: dict[int, tuple[float, tuple[int, ...]]] = {}
        for first, (so_far, stops) in best.items():
            least = first + 1 + (stage == 0) + (left == 0)
            last = layers if left == 0 else layers - left - 1
            starts = range(layers, layers + 1) if left == 0 else range(least, min(last, first + widest) + 1)
            for stop in starts:
                if stop < least or stop - first > widest:
                    continue
                value = joined(so_far, seconds(stage, first, stop))
                if np.isfinite(value) and value < found.get(stop, (np.inf, ()))[0]:
                    found[stop] = value, (*stops, stop)
        best = found
    return best[layers][1] if layers in best else None
