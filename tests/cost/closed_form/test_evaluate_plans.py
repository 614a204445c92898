"""Plans priced in one array equal plans priced by themselves, whatever else is in the array."""

from dataclasses import replace

import numpy as np
import pytest
from lattice_plans import family

from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.plans.arrays.short_plans import from_shorts

ORDERS = (
    ("tp", "cp", "dp_shard", "dp_replicate", "pp"),
    ("cp", "tp", "pp", "dp_shard", "dp_replicate"),
    ("pp", "dp_shard", "tp", "cp", "dp_replicate"),
)


@pytest.mark.parametrize("model", ["tied", "sparse"])
def test_plans_of_several_rank_orders_share_an_array(model):
    found = family(model, "h100-sxm-80gb x 24", "generic", 24, 11)
    plans = from_shorts(found.plans)
    orders = np.arange(len(plans)) % len(ORDERS)
    mixed = plans.with_choice("order", ORDERS[0])
    mixed = replace(mixed, values={**mixed.values, "order": ORDERS}).with_columns({"order": orders})
    together = evaluate(mixed, found.setting)
    for row in range(len(plans)):
        alone = evaluate(mixed.take(np.array([row])), found.setting)
        assert together.step_s[row] == pytest.approx(alone.step_s[0], rel=1e-14)
        assert together.total_bytes[row] == alone.total_bytes[0]
    first = evaluate(mixed.with_columns({"order": 0 * orders}), found.setting)
    assert (first.step_s != together.step_s).any()
