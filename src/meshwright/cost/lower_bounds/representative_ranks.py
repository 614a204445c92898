"""Representative pipeline ranks: one of each set with equal layers, its stages and those around them.

Of ranks with equal layers the first one holds most, and the last one waits longest for its passes and for their way
back: more stages lie before it, and it runs fewer forward passes meanwhile.
"""

from dataclasses import dataclass, fields

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
    """``ranks`` (K,) that differ, and the ``last`` ranks that equal them; how many blocks they have: (K, blocks).

    ``own`` on all stages of a rank, ``least`` on each of them at least. Of the last ranks: ``most`` on each of their
    stages at most, ``before`` on the stages before the first one, ``behind`` on those behind the last one. ``first``
    is what the first stage has, the same in every row.
    """

    ranks: Ints
    last: Ints
    own: Ints
    least: Ints
    most: Ints
    before: Ints
    behind: Ints
    first: Ints

    def padded(self, count: int) -> "RepresentativeRanks":
        """With the first rank again until there are ``count``."""
        again = np.minimum(np.arange(count), len(self.ranks)) % len(self.ranks)
        return RepresentativeRanks(*(getattr(self, field.name)[again] for field in fields(self)))


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
    _, first, inverse = np.unique(own, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    chosen = first[order]
    last = np.array([np.flatnonzero(inverse.reshape(-1) == kind)[-1] for kind in order])
    return RepresentativeRanks(
        ranks=chosen,
        last=last,
        own=own[chosen],
        least=np.stack([counts[of_rank[rank]].min(0) for rank in chosen]),
        most=np.stack([counts[of_rank[rank]].max(0) for rank in last]),
        before=np.stack([counts[: of_rank[rank].min()].sum(0) for rank in last]),
        behind=np.stack([counts[of_rank[rank].max() + 1 :].sum(0) for rank in last]),
        first=np.repeat(counts[:1], len(chosen), axis=0),
    )
