"""The encoded collectives of one unit of a rank inside a step, with the bytes of that rank. Pure.

===============  ===================================================================================================
collective       encoded
===============  ===================================================================================================
all-reduce       the legs of ``exchange_legs.py``, of the unit's shard on the rank; rows of rules are gathered
reduce-scatter   an all-to-all: each rank encodes the shards of all, tensor by tensor; their owners add them up
all-gather       each rank encodes its shard; the bytes of all
===============  ===================================================================================================
"""

from collections.abc import Sequence
from dataclasses import replace

from meshwright.program.pass_items import Collective, CollectiveKind
from meshwright.program.program import Program
from meshwright.program.rank_units.rank_units import RankUnits, UnitPlan
from meshwright.program.synchronisation.encoded_bytes import exchange_bytes
from meshwright.program.synchronisation.exchange_legs import exchange_legs, row_leg
from meshwright.program.synchronisation.rank_exchanges import unit_stretches
from meshwright.program.synchronisation.stretch import Stretch


def unit_legs(
    program: Program, rank: int, unit: UnitPlan, items: Sequence[Collective]
) -> tuple[Collective, ...]:
    """Return the collectives of a unit with those of entries as they are encoded."""
    return tuple(leg for item in items for leg in _legs(program, rank, unit, item))


def _legs(program: Program, rank: int, unit: UnitPlan, item: Collective) -> tuple[Collective, ...]:
    if item.entry is None:
        return (item,)
    entry = program.synchronise[item.entry]
    said = entry.compress
    if item.kind == "all-reduce":
        own, ranks = unit_shard(program, rank, unit), program.group_size(item.axes, item.part)
        legs = (row_leg(said, own, ranks),) if entry.takes_rows else exchange_legs(said, own, ranks)
        return tuple(replace(item, kind=leg.kind, logical_bytes=leg.logical_bytes) for leg in legs)
    size = sum(exchange_bytes(said, shard) for shard in unit_shards(unit))
    kind: CollectiveKind = "all-gather" if item.kind == "all-gather" else "all-to-all"
    return (replace(item, kind=kind, logical_bytes=size),)


def whole_items(unit: UnitPlan, items: Sequence[Collective]) -> tuple[Collective, ...]:
    """Return collectives as they were before they were encoded: legs of one entry over one group are one."""
    found: list[Collective] = []
    for item in items:
        if item.entry is None:
            found.append(item)
        elif not found or (found[-1].entry, found[-1].axes) != (item.entry, item.axes):
            cut: CollectiveKind = "all-gather" if item.kind == "all-gather" else "reduce-scatter"
            shared = unit.layout.parts > 1 and item.axes == unit.layout.mesh.shard
            found.append(replace(item, kind=cut if shared else "all-reduce"))
    return tuple(found)


def unit_shards(unit: UnitPlan) -> tuple[tuple[Stretch, ...], ...]:
    """Return the stretches of each rank that shares a unit."""
    return tuple(unit_stretches(unit, part) for part in range(unit.layout.parts))


def unit_shard(program: Program, rank: int, unit: UnitPlan) -> tuple[Stretch, ...]:
    """Return the stretches of a unit that a rank owns."""
    layout = unit.layout
    own = RankUnits(program, rank).place_in(layout.mesh.shard, unit.part) if layout.parts > 1 else 0
    return unit_stretches(unit, own)


def stretch_places(unit: UnitPlan, part: int) -> list[slice]:
    """Return the places of the stretches of one rank's shard in the whole unit."""
    starts = unit.layout.places
    return [
        slice(starts[name].start + of.start, starts[name].start + of.stop)
        for name, of, _ in unit.layout.spans(part)
    ]
