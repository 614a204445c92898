"""Gradient reductions between pipeline ranks that hold the same layers, for a group of plans
(``program/model_states/bidirectional_gradient_reduction.py``), as arrays."""

import numpy as np

from meshwright.cost.closed_form.plan_group import Floats, PlanGroup
from meshwright.cost.operators.pass_prices import collective_seconds
from meshwright.program.model_states.bidirectional_gradient_reduction import mirrored_reduction, reduced_units
from meshwright.program.pass_items import Collective


def mirrored_collectives(group: PlanGroup, blocks: tuple[int, ...]) -> tuple[Collective, ...]:
    """Return the collectives that sum a stage's gradients over the ranks that hold the same blocks."""
    if group.kind.chains == 1:
        return ()
    elements = [group.plan_elements[block] for block in blocks]
    return mirrored_reduction(
        reduced_units(elements, group.mode.gather), group.shape, group.setting.stack, "stage"
    )


def mirrored_seconds(group: PlanGroup) -> Floats:
    """Return their seconds on every pipeline rank, counted from when all participants are ready: (n, P)."""
    per_kind = []
    for blocks in group.stage_kinds:
        time = np.zeros(len(group.plans))
        for collective in mirrored_collectives(group, blocks):
            time = time + collective_seconds(collective, group.mesh, group.forms)
        per_kind.append(time)
    return group.per_rank(group.spread(per_kind))
