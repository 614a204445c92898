"""The exchange by which HD-PiSSA's ranks change the base (arXiv 2505.18777): W += Σ_k (B′A′ − BA)_k after each step.

Every data-parallel rank k gathers the A and B of all K ranks from before and after the step, in fp32: for each matrix
2·K·rank·(inputs + outputs) elements, far fewer than the change itself has. The sum is one product, [B′ −B]·[A′; A], of
which a rank computes the part of W that it holds.
"""

import numpy as np

from meshwright.program.local_shape import Number
from meshwright.program.model_states.state_elements import Elements
from meshwright.program.pass_items import Collective
from meshwright.program.program import Program

CHANGE_AXES = ("dp_shard", "dp_replicate")
CHANGE_BYTES = 4
BEFORE_AND_AFTER = 2


def replicas_of(program: Program) -> int:
    """Return the number of data-parallel ranks, which may each train adapters of its own."""
    return program.group_size(CHANGE_AXES)


def change_gathers_of(program: Program, stage: int) -> tuple[Collective, ...]:
    """Return the gathers of a stage's adapters in STEP, which may have exchanges of the optimizer too."""
    items = program.collectives.get((stage, "STEP"), ())
    return tuple(item for item in items if item.axes == CHANGE_AXES)


def change_gather(elements: Elements, ranks: Number, what: str) -> tuple[Collective, ...]:
    """Return the all-gather of a stage's adapters among ``ranks``; none where adapters are not each rank's own."""
    own = elements.of("gradient").own
    if not np.any(own):
        return ()
    size = ranks * BEFORE_AND_AFTER * CHANGE_BYTES * own
    return (Collective("all-gather", CHANGE_AXES, size, f"{what} changes"),)
