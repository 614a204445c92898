"""The experts' meshes of many plans are those that each plan gets by itself."""

from itertools import product

import numpy as np

from meshwright.cost.operators.price_plans import expert_sizes_of
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.forms.conversion import expert_grid
from meshwright.plans.forms.long import Grid

AXES = ("dp_replicate", "dp_shard", "cp", "tp", "ep", "etp")


def test_meshes_are_the_default_ones_of_the_plans():
    degrees = [row for row in product((1, 2, 3), (1, 4), (1, 2), (1, 2), (1, 2, 4), (1, 2)) if _divides(*row)]
    sharded = [dp_shard > 1 for _, dp_shard, *_ in degrees]
    columns = {axis: np.array(values) for axis, values in zip(AXES, zip(*degrees, strict=True), strict=True)}
    others = {"sharding": np.array(sharded, int), "pp": np.ones(len(degrees), int)}
    sizes = expert_sizes_of(PlanArrays(columns=columns | others, values={}))
    for place, (*grid, ep, etp) in enumerate(degrees):
        own = expert_grid(Grid(**dict(zip(AXES[:4], grid, strict=True))), ep, etp, not sharded[place])
        for axis in ("ep", "etp", "edp_shard", "edp_replicate"):
            assert sizes[axis][place] == getattr(own, axis)


def _divides(dp_replicate, dp_shard, cp, tp, ep, etp):
    return dp_replicate * dp_shard * cp * tp % (ep * etp) == 0
