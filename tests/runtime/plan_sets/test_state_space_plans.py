"""Mamba-2 on several ranks computes what one device does."""

import pytest
from covering_plans import told
from single_device_check import equal_to_one_device
from state_space_plans import FULL, QUICK


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("plan", QUICK, ids=lambda plan: f"{plan.model} {told(plan)}")
def test_mamba_2_is_computed_as_on_one_device(plan):
    equal_to_one_device(plan)


@pytest.mark.slow
@pytest.mark.parametrize("plan", FULL, ids=lambda plan: f"{plan.model} {told(plan)}")
def test_mamba_2_with_everything_else(plan):
    equal_to_one_device(plan)
