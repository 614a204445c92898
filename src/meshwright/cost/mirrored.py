"""What a group of plans exchanges because layers lie on several pipeline ranks (``program/mirrored.py``), as arrays."""

import numpy as np

from meshwright.cost.group import Floats, Group
from meshwright.cost.prices import collective_seconds
from meshwright.program.items import Collective
from meshwright.program.mirrored import mirrored_reduction, reduced_units


def mirrored_collectives(group: Group, blocks: tuple[int, ...]) -> tuple[Collective, ...]:
    """What a stage of these blocks sums up with the stages that have them too."""
    if group.kind.chains == 1:
        return ()
    elements = [group.per_plan_elements(group.block_elements[block]) for block in blocks]
    return mirrored_reduction(
        reduced_units(elements, group.mode.gather), group.shape, group.setting.stack, "stage"
    )


def mirrored_seconds(group: Group) -> Floats:
    """Seconds of that on every pipeline rank, when those that take part are ready: (n, P)."""
    per_kind = []
    for blocks in group.stage_kinds:
        time = np.zeros(len(group.plans))
        for collective in mirrored_collectives(group, blocks):
            time = time + collective_seconds(collective, group.mesh, group.forms)
        per_kind.append(time)
    return group.per_rank(group.spread(per_kind))
