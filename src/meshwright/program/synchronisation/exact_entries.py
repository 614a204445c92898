"""Entries of ``synchronise`` whose exchanges are inside a step: gradients, and parameters that sharding gathers.

Their axes stay exact in every step but for the encoding. A reduction over several axes is cut: the axes without an
entry first, exactly, then every axis with one.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.program.pass_items import Collective
from meshwright.program.synchronisation.islands import EXPERT_AXES


def entries_by_axis(entries: Iterable[Synchronisation], loose: Collection[str], state: str) -> dict[str, int]:
    """Return the numbers of entries that encode or combine a state over exact axes, by axis of either mesh."""
    found = {
        said.axis: number
        for number, said in enumerate(entries)
        if said.state == state and said.axis not in loose and (said.compress is not None or said.combines)
    }
    return found | {EXPERT_AXES[axis]: number for axis, number in found.items() if axis in EXPERT_AXES}


def with_entries(items: Iterable[Collective], numbers: Mapping[str, int]) -> tuple[Collective, ...]:
    """Return collectives with those over axes of entries marked; sums over several axes are cut."""
    return tuple(part for item in items for part in _cut(item, numbers)) if numbers else tuple(items)


def _cut(item: Collective, numbers: Mapping[str, int]) -> list[Collective]:
    encoded = [axis for axis in item.axes if axis in numbers]
    if not encoded:
        return [item]
    if item.kind != "all-reduce":  # what sharding cuts is exchanged among all of its ranks together
        return [replace(item, entry=numbers[encoded[0]])]
    exact = tuple(axis for axis in item.axes if axis not in numbers)
    cut = [replace(item, axes=exact)] if exact else []
    return cut + [replace(item, axes=(axis,), entry=numbers[axis]) for axis in encoded]
