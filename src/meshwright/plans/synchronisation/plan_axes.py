"""Loose and sharded axes of a plan, and the exchanges of tight axes that are encoded."""

from collections.abc import Iterator, Sequence

from meshwright.plans.forms.long import Layout, LongPlan
from meshwright.plans.synchronisation.synchronisation import AXES, Synchronisation, loose_axes


def sharded_axes(plan: LongPlan, layout: Layout | None = None) -> frozenset[str]:
    """Return the axes that entries may name and that shard some state; cp is joined to dp_shard.

    ``layout`` is the plan's only one where none is given.
    """
    layout = layout or next(iter(plan.layouts.values()))
    states, grid = layout.states or plan.states, layout.grid
    axes = {*states.parameter, *states.gradient, *states.optimizer}
    by_axis = {"dp_shard": {"dp_shard", "cp"} & axes, "dp_replicate": {"dp_replicate"} & axes}
    return frozenset(name for name, cut in by_axis.items() if any(getattr(grid, axis) > 1 for axis in cut))


def loose_axes_of_plan(plan: LongPlan) -> tuple[str, ...]:
    """Return the axes over which the parameters of a legal plan differ between exchanges, in the entries' order."""
    return loose_axes(plan.synchronise, sharded_axes(plan))


def tight_encoded(plan: LongPlan) -> Iterator[tuple[int, Synchronisation]]:
    """Yield the entries of a legal plan, with their places, that encode the exchanges of every step over tight axes.

    Those are gradients of replicated axes, gathers and reduce-scatters of sharded ones, and tokens of experts.
    """
    loose = loose_axes_of_plan(plan)
    for place, entry in enumerate(plan.synchronise):
        if entry.compress is not None and entry.axis in AXES and entry.axis not in loose:
            yield place, entry


def encoded_apart(plan: LongPlan, layouts: Sequence[str]) -> list[tuple[str, tuple[bool, ...]]]:
    """Return the layout of each block with the entries that encode it: blocks that differ in either are not the same.

    ``layouts`` are those of the first block, of every layer, and of the last block.
    """
    encoded = [entry.compress.layer_range for _, entry in tight_encoded(plan) if entry.compress]
    ranges = [layers for layers in encoded if layers is not None]
    return [(layout, tuple(place - 1 in layers for layers in ranges)) for place, layout in enumerate(layouts)]
