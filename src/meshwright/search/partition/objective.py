"""The objective of a partition: the largest load of a rank by one measure, under a limit by another."""

from dataclasses import dataclass, replace

import numpy as np

from meshwright.search.partition.layer_chain import Chain, Cut, Floats, Ints, Measure

ALIKE = 1e-12
"""Sums of the same layers in another order differ by so much, relatively."""


@dataclass(frozen=True, eq=False)
class Task:
    """Make the largest load by ``goal`` small; no rank's load by ``limit`` is above ``most``: (P,)."""

    chain: Chain
    goal: Measure
    limit: Measure
    most: Floats

    @classmethod
    def free(cls, chain: Chain, goal: Measure) -> "Task":
        """Without a limit."""
        nothing = Measure(np.zeros_like(goal.costs[:, :1]), np.zeros(chain.ranks))
        return cls(chain, goal, nothing, np.full(chain.ranks, np.inf))

    def loads(self, cut: Cut) -> Floats:
        """Every rank's load by the goal."""
        return self.chain.loads(self.goal, cut)

    def stage_costs(self, cut: Cut) -> Floats:
        """Return the cost of every stage alone by the goal: (K,)."""
        stages, modes, stops = np.arange(len(cut.modes)), np.array(cut.modes), np.array(cut.stops)
        sums = self.goal.sums
        return np.asarray((sums[modes, :, stages, stops[1:]] - sums[modes, :, stages, stops[:-1]]).max(1))

    def allows(self, cut: Cut) -> bool:
        """Return true if no rank is above the limit."""
        return bool((self.chain.loads(self.limit, cut) <= self.ceiling).all())

    @property
    def ceiling(self) -> Floats:
        """The limit, with room for the rounding of sums."""
        return self.most + ALIKE * np.abs(self.most)

    def as_ranks(self) -> "Task":
        """Return the task with a rank for every stage, without fixed loads and without a limit."""
        stages = len(self.chain.placement)
        chain = replace(self.chain, placement=tuple(range(stages)))
        return Task.free(chain, replace(self.goal, base=np.zeros(stages)))


def kinds_of(task: Task) -> Ints:
    """Return the kind of every layer, by number: (L,)."""
    columns = [measure.costs.reshape(-1, task.chain.layers) for measure in (task.goal, task.limit)]
    _, kinds = np.unique(np.concatenate(columns), axis=1, return_inverse=True)
    return np.asarray(kinds).reshape(-1)


def pieces_of(kinds: Ints) -> Ints:
    """Return a number for layers i to j exclusive, equal for equal pieces: (L + 1, L + 1); 0 for no layers."""
    size = len(kinds) + 1
    names = np.zeros((size, size), dtype=np.int64)
    known: dict[tuple[int, int], int] = {}
    for last in range(1, size):
        kind = int(kinds[last - 1])
        for first in range(last):
            key = int(names[first, last - 1]), kind
            names[first, last] = known.setdefault(key, len(known) + 1)
    return names
