"""PyTorch's pipeline runtime takes our lists and finds the gradients that the interpreter is held against."""

import pytest
from schedule_combinations import PLAIN, crossed, schedules
from torch_pipelining_oracle import worst_difference

from meshwright.runtime.verify.verify_case import VerifyCase
from meshwright.schedules.generators import SCHEDULES

EQUAL = 1e-12
ONE_WAY = [name for name in schedules() if SCHEDULES[name].chains == 1]
"""PyTorch has no stage that stands on two ranks."""


def difference(name, stages):
    return worst_difference(VerifyCase(*crossed(name, PLAIN | {"stages": stages}).lowered()))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", ["1f1b", "zb-v"])
def test_lists_with_whole_and_split_backward_passes(name):
    assert difference(name, "even") < EQUAL


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_WAY)
@pytest.mark.parametrize("stages", ["even", "uneven"])
def test_every_list_of_stages_that_stand_once(name, stages):
    assert difference(name, stages) < EQUAL
