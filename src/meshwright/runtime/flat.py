"""A unit's flat buffer and its ranks' shards: one into the other, by the pieces of the unit's layout."""

import torch

from meshwright.runtime.unit_layout import UnitLayout


def take(layout: UnitLayout, part: int, flat: torch.Tensor, shard: torch.Tensor) -> None:
    """Copy a rank's pieces of a flat buffer into its shard."""
    at = 0
    for start, stop in layout.pieces(part):
        shard[at : at + stop - start] = flat[start:stop]
        at += stop - start


def cut(layout: UnitLayout, flat: torch.Tensor) -> torch.Tensor:
    """All ranks' shards one after the other, each padded; the flat buffer itself where that is the same."""
    if not layout.shared and layout.size == layout.parts * layout.shard:
        return flat
    rows = flat.new_zeros((layout.parts, layout.shard))
    for part, row in enumerate(rows):
        take(layout, part, flat, row)
    return rows.view(-1)


def joined(layout: UnitLayout, rows: torch.Tensor) -> torch.Tensor:
    """The flat buffer of all ranks' shards; the same memory where only the end is padded."""
    if not layout.shared:
        return rows[: layout.size]
    flat = rows.new_empty(layout.size)
    for part, row in enumerate(rows.view(layout.parts, -1)):
        at = 0
        for start, stop in layout.pieces(part):
            flat[start:stop] = row[at : at + stop - start]
            at += stop - start
    return flat
