"""Weights of the members of a group in an exchange between islands, from labels that every rank can count. Pure.

A member counts the labels since the last exchange of all ranks that are equal to it: those that exact axes join, and
those that an exchange over another axis has joined just before, behind the same step. So ranks that were equal stay
equal.
"""

from collections.abc import Collection, Sequence

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
