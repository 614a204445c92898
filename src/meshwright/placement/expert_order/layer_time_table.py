"""A table of a layer's time over (b, N, R) for annealing, interpolated and extrapolated linearly."""

from dataclasses import dataclass
from itertools import product

import numpy as np

from meshwright.placement.expert_order.problem import DispatchLoad, Floats, Task

POINTS = 13


@dataclass(frozen=True, eq=False)
class Guide:
    """``table`` of seconds where each of the three is at one of its ``points``, ``low`` and then every ``step``."""

    low: Floats
    step: Floats
    table: Floats

    @staticmethod
    def of(task: Task) -> "Guide":
        """From perfect balance and one node for all choices, to twice what the model's numbering makes."""
        numbered = task.meeting(task.as_numbered, np.arange(task.layers))
        low = np.array([1.0, 1.0, 1.0])
        most = task.chosen
        high = np.array([2 * numbered.busiest.max(), min(most, task.nodes), min(most, task.ranks)])
        step = np.maximum(high - low, 1e-3) / (POINTS - 1)
        axes = np.meshgrid(
            *(first + each * np.arange(POINTS) for first, each in zip(low, step, strict=True)), indexing="ij"
        )
        seconds = task.seconds(DispatchLoad(*(axis.ravel() for axis in axes)))
        return Guide(low, step, np.broadcast_to(seconds, POINTS**3).reshape(axes[0].shape))

    def seconds(self, of: DispatchLoad) -> Floats:
        """Of every entry."""
        places = [(value - low) / step for value, low, step in zip(of, self.low, self.step, strict=True)]
        cells = [np.clip(place.astype(np.int64), 0, POINTS - 2) for place in places]
        rests = [place - cell for place, cell in zip(places, cells, strict=True)]
        total = np.zeros_like(of.busiest)
        for corner in product((0, 1), repeat=3):
            weight = np.ones_like(total)
            for up, rest in zip(corner, rests, strict=True):
                weight = weight * (rest if up else 1 - rest)
            total += weight * self.table[tuple(cell + up for cell, up in zip(cells, corner, strict=True))]
        return total
