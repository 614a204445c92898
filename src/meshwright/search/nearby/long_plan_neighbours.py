"""Neighbours of a long-form plan: other stages, states, layer rules and degrees inside a stage.

What a plan writes out is kept. tp, cp, ep and the micro-batch are halved, kept or doubled, in every combination;
data parallelism takes up what tp and cp leave, so that the ranks of a stage stay as many: dp_shard does, or
dp_replicate where nothing is sharded. Those of a plan with several layouts are in ``layout_neighbours.py``. Whether a
neighbour is legal is not asked here.
"""

from collections.abc import Iterator
from itertools import product

from meshwright.plans.forms.conversion import expert_grid
from meshwright.plans.forms.long import Grid, Layout, LongPlan
from meshwright.search.nearby.layout_neighbours import layout_neighbours

KEPT, DOUBLED, HALVED = 0, 1, -1
STEPS = (KEPT, DOUBLED, HALVED)


def neighbours(plan: LongPlan) -> Iterator[LongPlan]:
    """Every neighbour of a plan, without the plan itself."""
    if len(plan.layouts) > 1:
        yield from layout_neighbours(plan)
        return
    ((name, layout),) = plan.layouts.items()
    unsharded = plan.sharding == "none"
    for tp, cp, ep, micro_batch in product(STEPS, repeat=4):
        changed = _layout(layout, (tp, cp, ep), unsharded)
        sequences = _stepped(plan.pipeline.micro_batch, micro_batch)
        if changed is None or sequences is None or (tp, cp, ep, micro_batch) == (KEPT,) * 4:
            continue
        pipeline = plan.pipeline.model_copy(update={"micro_batch": sequences})
        yield plan.model_copy(update={"layouts": {name: changed}, "pipeline": pipeline})


def _stepped(degree: int, step: int) -> int | None:
    """Return the degree halved, kept or doubled; None where it has no half."""
    if step == HALVED:
        return None if degree % 2 else degree // 2
    return 2 * degree if step == DOUBLED else degree


def _layout(layout: Layout, steps: tuple[int, int, int], unsharded: bool) -> Layout | None:
    """Return the layout with steps of tp, cp and ep; None where a degree is no whole number."""
    tp, cp = _stepped(layout.grid.tp, steps[0]), _stepped(layout.grid.cp, steps[1])
    if tp is None or cp is None or (layout.experts is None and steps[2] != KEPT):
        return None
    grid = _grid(layout.grid, tp, cp, unsharded)
    ep = _stepped(layout.experts.ep, steps[2]) if layout.experts else 1
    if grid is None or ep is None:
        return None
    experts = layout.experts
    if experts and steps[2] != KEPT:
        made = expert_grid(grid, ep, experts.etp, unsharded)
        experts = made.model_copy(update={"order": experts.order})
    sequence = layout.sequence_parallel if layout.grid.tp > 1 else True
    return layout.model_copy(
        update={"grid": grid, "experts": experts, "sequence_parallel": sequence and tp > 1}
    )


def _grid(grid: Grid, tp: int, cp: int, unsharded: bool) -> Grid | None:
    """Return the mesh with other degrees over as many ranks; None where they do not divide."""
    axis = "dp_replicate" if unsharded else "dp_shard"
    degree, rest = divmod(getattr(grid, axis) * grid.cp * grid.tp, cp * tp)
    return None if rest or not degree else grid.model_copy(update={"tp": tp, "cp": cp, axis: degree})
