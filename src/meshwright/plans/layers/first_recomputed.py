"""Full recomputation of the first n layers of each stage: from n to layers, and from layers to the nearest n.

Stages with fewer than n layers recompute all of theirs. Layers that predict further tokens come behind a model's own
layers and are never among the first ones.
"""

from collections.abc import Sequence

from meshwright.plans.forms.short import Recompute
from meshwright.plans.layers.layer_assignment import StageLayers


def first_recomputed(
    stages: Sequence[StageLayers], main_layers: int, layers: int, first: int
) -> tuple[Recompute, ...]:
    """Return the recomputation of each of ``layers`` layers: full for the first ones of each stage."""
    again: list[Recompute] = ["none"] * layers
    for stage in stages:
        for layer in range(stage.first, min(stage.first + first, stage.last, main_layers)):
            again[layer] = "full"
    return tuple(again)


def nearest_first(of_layers: Sequence[Recompute], stages: Sequence[StageLayers], main_layers: int) -> int:
    """Return the n from 1 with which the fewest layers change: of several the largest, which needs least memory."""

    def changed(first: int) -> int:
        new = first_recomputed(stages, main_layers, len(of_layers), first)
        return sum(own != other for own, other in zip(of_layers, new, strict=True))

    most = max(min(stage.last, main_layers) - stage.first for stage in stages)
    return min(range(most, 0, -1), key=changed)
