"""Gather and reduce a unit whose shards have unlike sizes: an operation for each rank that has a shard.

A library's all-gather and reduce-scatter have equal parts. Here every rank broadcasts its shard to its place in the
flat buffer, and every shard's gradients are reduced to the rank that has it. Nothing is padded: the bytes are those of
the whole buffer. All operations start at once.
"""

from collections.abc import Iterator

import torch

from meshwright.program.pass_items import Collective, CollectiveKind
from meshwright.program.rank_units.unit_layout import UnitLayout
from meshwright.runtime.comm.communicator import Communicator, Work


def gather_shards(
    communicator: Communicator,
    item: Collective,
    layout: UnitLayout,
    own: torch.Tensor,
    rows: torch.Tensor,
    width: int,
) -> Iterator[Work]:
    """Gather the shards of all ranks one after the other into ``rows``; yield each operation."""
    if not layout.weights:
        yield communicator.start(item, own, width, out=rows, elements=layout.size)
        return
    rows[layout.row(communicator.place_in(layout.mesh.shard))] = own
    yield from _of_each_shard(communicator, item, layout, rows, width, "broadcast")


def reduce_to_shards(
    communicator: Communicator, item: Collective, layout: UnitLayout, flat: torch.Tensor, width: int
) -> Iterator[Work]:
    """Sum each shard of all ranks' flat buffers on the rank that has it; the rest of the buffer is void afterwards."""
    yield from _of_each_shard(communicator, item, layout, flat, width, "reduce")


def _of_each_shard(
    communicator: Communicator,
    item: Collective,
    layout: UnitLayout,
    flat: torch.Tensor,
    width: int,
    by: CollectiveKind,
) -> list[Work]:
    """Start an operation for each shard that is not empty; together they are logged once."""
    works: list[Work] = []
    for part, root in enumerate(communicator.ranks_of(item.axes)):
        piece, again = flat[layout.row(part)], bool(works)
        if len(piece):
            works.append(
                communicator.start(
                    item, piece, width, elements=layout.size, root=root, by=by, continues=again
                )
            )
    return works
