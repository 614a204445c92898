"""Replace the collectives of a Program that entries of ``synchronise`` encode by the encoded ones. Pure.

The bytes are those of the first rank of each pipeline rank: shards of one unit may differ by a bucket.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from meshwright.program.pass_items import Body, Collective
from meshwright.program.program import Program
from meshwright.program.rank_units.rank_units import RankUnits, UnitPlan
from meshwright.program.synchronisation.exact_entries import entries_by_axis
from meshwright.program.synchronisation.unit_legs import unit_legs, whole_items
from meshwright.schedules.action import Action


def encodes_inside_steps(program: Program) -> bool:
    """Return true if a Program has encoded reductions of gradients or gathers of parameters."""
    return any(
        entries_by_axis(program.synchronise, program.loose, state) for state in ("parameter", "gradient")
    )


def micro_batches_reduced_together(program: Program) -> int:
    """Return the micro-batches whose gradients are added up before they are reduced."""
    if any(part.mode.reduce == "per-micro-batch" for part in program.parts):
        return 1
    if not program.parts.by_unit:
        return program.micro_batches
    stage = program.stages_of(0)[0].index
    reductions = sum(action == Action("REDUCE", stage) for action in program.lists[0])
    return program.micro_batches // max(1, reductions)


def with_encoded_collectives(program: Program) -> Program:
    """Return the Program with encoded collectives in gathers, reductions and bodies of passes."""
    units = {
        rank: RankUnits(program, program.parts.members(rank)[0]) for rank in range(program.pipeline_ranks)
    }
    collectives = dict(program.collectives)
    for (section, kind), items in program.collectives.items():
        if section is not None and any(item.entry is not None for item in items):
            held = units[program.sections[section].rank]
            collectives[section, kind] = _of_units(program, held, _section_units(held, section), items)
    bodies = {
        (section, kind): _body(program, units[program.sections[section].rank], section, body)
        for (section, kind), body in program.bodies.items()
    }
    return replace(program, collectives=collectives, bodies=bodies)


def encoded_for_rank(
    program: Program, rank: int, section: int, items: Sequence[Collective]
) -> tuple[Collective, ...]:
    """Return collectives of a section with the encoded ones of a rank; the Program has those of another one."""
    if all(item.entry is None for item in items):
        return tuple(items)
    held, found = RankUnits(program, rank), list[Collective]()
    by_block = _units_by_block(held, section)
    for _, group in groupby(items, key=lambda item: (item.entry, item.axes, item.part, item.what)):
        legs = list(group)
        if legs[0].entry is None:
            found += legs
            continue
        units = by_block.get(block_of(legs[0])) or _section_units(held, section)
        (unit,) = _on_mesh(units, legs[0])[:1]
        found += unit_legs(program, rank, unit, whole_items(unit, legs))
    return tuple(found)


def _units_by_block(held: RankUnits, section: int) -> dict[int, list[UnitPlan]]:
    """Return the trained units of each block of a section."""
    places = zip(held.places[section], held.of_places[section], strict=True)
    return {place.block: [unit for unit in units if unit.trained] for place, units in places}


def _on_mesh(units: Iterable[UnitPlan], item: Collective) -> list[UnitPlan]:
    return [unit for unit in units if unit.part == item.part and unit.layout.mesh.axes.issuperset(item.axes)]


def _section_units(held: RankUnits, section: int) -> list[UnitPlan]:
    every = (unit for units in held.of_places[section] for unit in units)
    return list({id(unit): unit for unit in every if unit.trained}.values())


def _of_units(
    program: Program, held: RankUnits, units: Sequence[UnitPlan], items: Iterable[Collective]
) -> tuple[Collective, ...]:
    """Return items with each encoded one as that of the unit on whose mesh it is."""
    found: list[Collective] = []
    for item in items:
        own = _on_mesh(units, item)
        found += unit_legs(program, held.rank, own[0], [item]) if own else (item,)
    return tuple(found)


def _body(program: Program, held: RankUnits, section: int, body: Body) -> Body:
    """Return a body with the exchanges of blocks encoded; they name their blocks, or else are a whole section's."""
    by_block, whole = _units_by_block(held, section), _section_units(held, section)

    def encoded(item: Collective) -> tuple[Collective, ...]:
        if item.entry is None:
            return (item,)
        return _of_units(program, held, by_block.get(block_of(item)) or whole, [item])

    return tuple(
        replace(segment, overlapped=tuple(leg for item in segment.overlapped for leg in encoded(item)))
        for segment in body
    )


def block_of(item: Collective) -> int:
    """Return the block whose parameters a collective in a pass is about; −1 for a whole stage."""
    kind, _, number = item.what.partition(" ")
    return int(number) if kind == "block" else -1
