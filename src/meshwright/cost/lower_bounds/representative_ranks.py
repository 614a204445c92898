"""Representative pipeline ranks: the first of each set with equal layers, its stages and in-flight counts.

A rank that comes later holds no more than the first one that has the same, and ends no later than it must.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.model.graph import ModelGraph
from meshwright.plans.forms.long import Pipeline
from meshwright.plans.forms.short import Schedule
from meshwright.plans.layers.layer_assignment import stage_layers
from meshwright.program.lowering.stage_blocks import stage_blocks
from meshwright.schedules.choice import ScheduleChoice

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RepresentativeRanks:
    """``ranks`` (K,) that differ; how many of each block of the model they have: (K, blocks).

    ``own`` on all stages of a rank, ``least`` on each of them at least, ``before`` on the stages before its first one.
    """

    ranks: Ints
    own: Ints
    least: Ints
    before: Ints

    def padded(self, count: int) -> "RepresentativeRanks":
        """With the first rank again until there are ``count``."""
        again = np.minimum(np.arange(count), len(self.ranks)) % len(self.ranks)
        return RepresentativeRanks(self.ranks[again], self.own[again], self.least[again], self.before[again])


def representative_ranks(
    choice: ScheduleChoice, ranks: int, chunks: int, model: ModelGraph
) -> RepresentativeRanks:
    """Return the ranks of a pipeline with balanced stages that differ in their layers."""
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
    return RepresentativeRanks(
        chosen,
        own[chosen],
        np.stack([counts[of_rank[rank]].min(0) for rank in chosen]),
        np.stack([counts[: of_rank[rank][0]].sum(0) for rank in chosen]),
    )
