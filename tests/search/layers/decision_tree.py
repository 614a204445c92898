"""Decision tree of parallel strategies of a layer on a power of two of devices.

The pipeline takes its degree first, so that it spans the slowest links. The devices of a stage are then divided by one
axis after the other, from the outermost to the innermost, each with a power of two and at most once. Pruned: data
parallelism and sharded data parallelism do not meet in a strategy, because sharding over the ranks of both takes less
memory at equal traffic (Galvatron, arXiv 2211.13878, section 3).
"""

from collections.abc import Iterator, Sequence

AXES = ("dp_replicate", "dp_shard", "tp")
"""The axes of the paper: data parallelism, sharded data parallelism, tensor parallelism."""
UNMIXED = ("dp_replicate", "dp_shard")
Strategy = tuple[tuple[str, int], ...]
"""Axes with their degrees, outermost first."""


def stage_strategies(devices: int, axes: Sequence[str] = AXES, *, pruned: bool = True) -> Iterator[Strategy]:
    """Yield the leaves of the tree of a stage of ``devices``, a power of two."""
    if devices == 1:
        yield ()
        return
    for axis in axes:
        rest = tuple(other for other in axes if other != axis)
        if pruned and axis in UNMIXED:
            rest = tuple(other for other in rest if other not in UNMIXED)
        degree = 2
        while degree <= devices:
            yield from (
                ((axis, degree), *inner) for inner in stage_strategies(devices // degree, rest, pruned=pruned)
            )
            degree *= 2


def strategies(
    devices: int, *, pruned: bool = True, recompute: bool = False
) -> list[tuple[int, Strategy, bool]]:
    """Return (pp, strategy of a stage, recomputed) of every leaf of the whole tree on ``devices``, a power of two."""
    found = []
    pp = 1
    while pp <= devices:
        leaves = list(stage_strategies(devices // pp, pruned=pruned))
        found += [
            (pp, leaf, again) for leaf in leaves for again in ((False, True) if recompute else (False,))
        ]
        pp *= 2
    return found
