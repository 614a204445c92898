"""Weights of the members of a group in an exchange between islands, from labels that every rank can count. Pure.

A member counts the labels since the last exchange of all ranks that are equal to it: those that exact axes join, and
those that an exchange over another axis has joined just before, behind the same step. So ranks that were equal stay
equal.
"""

from collections.abc import Collection, Iterator, Sequence

from meshwright.program.program import Program
from meshwright.program.synchronisation.rank_exchanges import fragment_layers

DATA_AXES = ("dp_replicate", "dp_shard")
"""The axes of a table of labels."""


def exchange_weights(
    labels: Sequence[Sequence[int]], axis: str, own: tuple[int, int], joined: Collection[str], *, equal: bool
) -> list[float]:
    """Return the weights of the members of a group over ``axis``, which add up to 1.

    ``labels`` are by (dp_replicate, dp_shard), ``own`` the rank's place there. Ranks along the other axis count where
    it is ``joined``. Without any label all weigh the same.
    """
    at = DATA_AXES.index(axis)
    lines = labels if at == 0 else list(zip(*labels, strict=True))
    other = DATA_AXES[1 - at]
    counts = [sum(line) if other in joined else line[own[1 - at]] for line in lines]
    total = sum(counts)
    if equal or not total:
        return [1 / len(counts)] * len(counts)
    return [count / total for count in counts]


def joined_axes(
    program: Program, entry: int, fragment: int, ended: Collection[tuple[int, int]]
) -> frozenset[str]:
    """Return the axes over which ranks hold equal values when an exchange of a fragment begins.

    Those are exact axes, and loose ones over which other entries have just replaced the same states of the same layers
    by values that all ranks share. ``ended``: entries and fragments whose exchanges have ended behind this step.
    """
    layers, states = fragment_layers(program, entry, fragment), program.synchronise[entry].states
    return frozenset(
        axis
        for axis in DATA_AXES
        if axis not in program.loose
        or all(layers <= frozenset(_replaced(program, axis, state, ended)) for state in states)
    )


def _replaced(program: Program, axis: str, state: str, ended: Collection[tuple[int, int]]) -> Iterator[int]:
    """Yield the layers of which all ranks along an axis have just got the same state."""
    for entry, fragment in ended:
        said = program.synchronise[entry]
        shared = said.merge == 1 and said.own == "stale"
        if said.axis == axis and state in said.states and shared:
            yield from fragment_layers(program, entry, fragment)
