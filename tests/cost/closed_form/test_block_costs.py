"""Costs of single blocks: what they depend on."""

from dataclasses import fields

import numpy as np
import pytest
from lattice_plans import family

from meshwright.cost.closed_form import block_costs as module
from meshwright.cost.closed_form.block_costs import block_costs
from meshwright.plans.arrays.distinct_rows import Distinct
from meshwright.plans.arrays.short_plans import from_shorts


@pytest.mark.parametrize("stack", ["generic", "meshwright"])
def test_plans_that_differ_only_in_stages_per_rank_are_priced_once(stack, monkeypatch):
    found = family("untied", "h100-sxm-80gb x 24", stack, 120, 2)
    plans = from_shorts(found.plans)
    assert len(set(plans.virtual_stages.tolist())) > 2
    once = block_costs(plans, found.setting)
    rows = np.arange(len(plans))
    monkeypatch.setattr(module, "distinct", lambda columns: Distinct(rows, rows))
    for field in fields(once):
        each = getattr(block_costs(plans, found.setting), field.name)
        assert getattr(once, field.name) == pytest.approx(each, rel=1e-14)
