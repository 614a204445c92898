"""Pipeline ranks that stand for all others: of those that have equal layers the first one, with what it has.

A rank that comes later holds no more than the first one that has the same, and ends no later than it must.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.model.graph import ModelGraph
from meshwright.plan.layers import stage_layers
from meshwright.plan.long import Pipeline
from meshwright.plan.short import Schedule
from meshwright.program.stages import stage_blocks
from meshwright.schedule.choice import ScheduleChoice

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class StageRanks:
    """``ranks`` (K,) that differ; how many of each block of the model they have: (K, blocks).

    ``own`` on all stages of a rank, ``least`` on each of them at least, ``before`` on the stages before its first one.
    """

    ranks: Ints
    own: Ints
    least: Ints
    before: Ints

    def padded(self, count: int) -> "StageRanks":
        """With the first rank again until there are ``count``."""
        again = np.minimum(np.arange(count), len(self.ranks)) % len(self.ranks)
        return StageRanks(self.ranks[again], self.own[again], self.least[again], self.before[again])


def stage_ranks(choice: ScheduleChoice, ranks: int, chunks: int, model: ModelGraph) -> StageRanks:
    """The ranks of a pipeline with balanced stages that differ in their layers."""
    placement = choice.kind.placement(ranks, chunks)
    pipeline = Pipeline(placement=placement, schedule=Schedule.of(choice))
    contents = stage_layers(pipeline, len(model.layer_blocks))
    counts = np.zeros((len(placement), len(model.blocks)), dtype=np.int64)
    for stage, content in enumerate(contents):
        np.add.at(counts[stage], list(stage_blocks(content, model)), 1)
    of_rank = [np.flatnonzero(np.array(placement) == rank) for rank in range(ranks)]
    own = np.stack([counts[stages].sum(0) for stages in of_rank])
    _, first = np.unique(own, axis=0, return_index=True)
    chosen = np.sort(first)
    return StageRanks(
        chosen,
        own[chosen],
        np.stack([counts[of_rank[rank]].min(0) for rank in chosen]),
        np.stack([counts[: of_rank[rank][0]].sum(0) for rank in chosen]),
    )
