"""Cut layers into pipeline stages and choose a strategy for each of them, both at once.

Step time grows with the slowest stage and with the sum of all, and each of these with every stage's own seconds. So a
stage of given layers takes its quickest assignment that fits (``chain_labels.py``), and a cut is chosen among all: the
slowest stage is as quick as it can be, and with that the sum of all stages the least.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.search.layers.chain_labels import ChainLabels

WIDEST = 1.6
"""A stage has at most so many times the mean number of layers, and a few more."""
MORE = 2
CLOSE = 1e-9


@dataclass(frozen=True)
class StageAssignment:
    """Stages from ``stops[k]`` to ``stops[k + 1]`` in a row of layers, with seconds, and each layer's strategy."""

    stops: tuple[int, ...]
    seconds: tuple[float, ...]
    strategies: tuple[int, ...]


def assigned_stages(
    kinds: Sequence[int], chains: Sequence[ChainLabels], capacity: float, stops: Sequence[int] | None = None
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
            best = labels.best(capacity)
            known[key] = np.inf if best is None else float(labels.seconds[best])
        return known[key]

    found = tuple(stops) if stops is not None else best_cut(len(kinds), len(chains), seconds)
    if found is None:
        return None
    of_stages = tuple(seconds(k, found[k], found[k + 1]) for k in range(len(chains)))
    if not np.isfinite(of_stages).all():
        return None
    strategies: list[int] = []
    for stage, chain in enumerate(chains):
        labels = chain.of(tuple(kinds[found[stage] : found[stage + 1]]))
        best = labels.best(capacity)
        assert best is not None, "the stage fits"
        strategies += labels.strategies(best)
    return StageAssignment(found, of_stages, tuple(strategies))


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
