"""Convert between a unit's flat buffer and its ranks' shards, by the pieces of the unit's layout."""

import torch

from meshwright.runtime.state.unit_layout import UnitLayout


def shard_of_flat(layout: UnitLayout, part: int, flat: torch.Tensor, shard: torch.Tensor) -> None:
    """Copy a rank's pieces of a flat buffer into its shard."""
    at = 0
    for start, stop in layout.pieces(part):
        shard[at : at + stop - start] = flat[start:stop]
        at += stop - start


def shards_of_flat(layout: UnitLayout, flat: torch.Tensor) -> torch.Tensor:
    """Return all ranks' shards concatenated, each padded; the flat buffer itself if that is the same."""
    if not layout.shared and layout.size == layout.parts * layout.shard:
        return flat
    rows = flat.new_zeros((layout.parts, layout.shard))
    for part, row in enumerate(rows):
        shard_of_flat(layout, part, flat, row)
    return rows.view(-1)


def flat_of_shards(layout: UnitLayout, rows: torch.Tensor) -> torch.Tensor:
    """Return the flat buffer of all ranks' shards; a view if only the end is padded."""
    if not layout.shared:
        return rows[: layout.size]
    flat = rows.new_empty(layout.size)
    for part, row in enumerate(rows.view(layout.parts, -1)):
        at = 0
        for start, stop in layout.pieces(part):
            flat[start:stop] = row[at : at + stop - start]
            at += stop - start
    return flat
