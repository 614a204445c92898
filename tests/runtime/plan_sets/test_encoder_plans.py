"""T5 and Qwen2.5-VL on several ranks compute what one device does."""

import pytest
from covering_plans import told
from encoder_plans import ENCODERS
from single_device_check import equal_to_one_device


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("plan", ENCODERS, ids=lambda plan: f"{plan.model} {told(plan)}")
def test_encoders_are_computed_as_on_one_device(plan):
    equal_to_one_device(plan)
